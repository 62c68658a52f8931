#include "train/run/auto_prefetch.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "dist/launch/rank_agreement.h"
#include "perf/comm/prefetch_depth.h"
#include "perf/model/machine.h"
#include "perf/timing/ceilings.h"
#include "perf/timing/device_ceilings.h"
#include "train/run/known_link.h"
#include "train/run/peak_rate.h"
#include "train/run/train_options.h"
#include "train/run/train_ranks.h"
#include "train/schedule_times.h"

namespace kiln {
namespace {

struct Here {
  Hardware hardware;
  double share = 1;  // of it that is this rank's
  std::string times;
};

double copy_rate(RankContext& ctx) {
  if (ctx.device().type == DeviceType::cuda) {
    RankOptions options;
    options.device = ctx.device();
    RankContext own(options);  // its memory is not the run's
    return measure_device_ceilings(own,
                                   {.dtypes = {}, .copy = {std::size_t{256} << 20}, .seconds_each = 0.02})
        .copy;
  }
  return measure_cpu_ceilings(ctx.pool(), ctx.traits().isa,
                              {.seconds_each = 0.02, .one_thread = false, .flops = false})
      .copy.all;
}

// By its hardware file where it has one, else by rates measured now, on this rank's own threads.
Here machine_here(const TrainRequest& r, RankContext& ctx, DType compute) {
  const RankPlaces places = rank_places(ctx.world());
  const bool cpu = ctx.device().type == DeviceType::cpu;
  const int sharing =
      cpu || !places.processes ? places.here : std::max(1, places.here / std::max(1, places.gpus));
  const KnownMachine known = known_machine(r.results, machine_of(ctx.device(), 0));
  if (known.hardware && known.hardware->calibration)
    return {*known.hardware, 1.0 / sharing, "calibrated calls"};
  if (known.hardware) return {*known.hardware, 1.0 / sharing, "rooflines of the hardware file"};
  Here here;
  here.hardware.name = "here";
  here.hardware.kind = ctx.device().type;
  here.hardware.flops = {{std::string(name_of(compute)), measure_peak(ctx, compute) / ctx.world()}};
  here.hardware.bytes_per_s = copy_rate(ctx) / sharing;
  here.times = "rooflines of rates measured now";
  if (!(here.hardware.flops.front().second > 0) || !(here.hardware.bytes_per_s > 0))
    throw Error(fmt::format("--fsdp-prefetch is 'auto', and the rates of {} could not be measured",
                            ctx.device().str()),
                "give a depth, such as 1", ErrorKind::unavailable);
  return here;
}

AutoPrefetch choose(const TrainRequest& r, MemoryRequest memory, RankContext& ctx, int ranks,
                    double free_memory) {
  const KnownLink link = known_link(r, "--fsdp-prefetch");
  const CallSeconds seconds = seconds_between(link, ranks);
  const DType compute = policy_of(memory.layout.precision).compute;
  memory.sharing.prefetch = 0;
  RankOptions options = rank_options_of(r, ctx.world());
  options.threads = ctx.pool().threads();
  options.meta_compute_capability = ctx.traits().compute_capability;
  const RankSchedule schedule = record_schedule(memory, options);
  const Here here = machine_here(r, ctx, compute);
  const TimeModel model(here.hardware, compute);
  const ScheduleTimes times = times_of(schedule, op_times_by(model, here.share),
                                       static_cast<int64_t>(size_of(schedule.grad)), seconds);
  const double free_bytes = free_memory - static_cast<double>(schedule.memory.peak_total);
  const PrefetchChoice choice = choose_prefetch(
      times.micro_steps.back().windows, ranks,
      [&](std::string_view what, int64_t bytes) { return bytes == 0 ? 0 : seconds(what, bytes); },
      static_cast<int64_t>(std::max(0.0, free_bytes)));
  return {choice.best.depth,
          fmt::format("fsdp prefetch {}; by {} and {}", choice.why(), link.from, here.times)};
}

}  // namespace

AutoPrefetch auto_prefetch(const TrainRequest& r, const MemoryRequest& memory, RankContext& ctx,
                           Communicator& comm, double free_memory) {
  AutoPrefetch found;
  all_or_throw(ctx, comm, "prefetch depth", [&] {
    if (comm.rank() == 0) found = choose(r, memory, ctx, data_ranks_of(r), free_memory);
  });
  const double mine = found.depth;
  found.depth = static_cast<int>(all_gather_numbers(ctx, comm, {&mine, 1}, "prefetch depth").front().front());
  return found;
}

}  // namespace kiln
