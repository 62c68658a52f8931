#include "train/run/step_prediction.h"

#include <algorithm>

#include "perf/model/step_clock.h"
#include "train/predicted_step.h"
#include "train/rank_schedule.h"
#include "train/run/known_link.h"
#include "train/run/peak_rate.h"

namespace kiln {
namespace {

// Micro-steps after the second are like it, so that two of them more tell the time of any number.
std::optional<double> step_alone(const StepClock& clock, const MemoryRequest& request,
                                 const RankOptions& rank) {
  const DType compute = policy_of(request.layout.precision).compute;
  const bool graph = request.step.graph && rank.device.target == DeviceType::cuda;
  const auto seconds = [&](int micro_steps) -> std::optional<double> {
    MemoryRequest fewer = request;
    fewer.step.micro_steps = micro_steps;
    fewer.evaluates = false;
    const std::optional<StepTime> time = clock.predict(record_schedule(fewer, rank).ops, compute, graph);
    return time ? std::optional<double>(time->total()) : std::nullopt;
  };
  const int all = request.step.micro_steps;
  const std::optional<double> few = seconds(std::min(all, 3));
  if (!few || all <= 3) return few;
  return *few + (all - 3) * (*few - *seconds(2));
}

Layout layout_of(const MemoryRequest& request, int ranks) {
  Layout layout;
  layout.tensor = std::max(1, request.layout.tensor_ranks);
  layout.data = ranks / layout.tensor;
  const std::size_t colon = request.strategy.find(':');
  layout.strategy = request.strategy.substr(0, colon);
  if (layout.strategy == "ddp" && colon != std::string::npos)
    layout.form = request.strategy.substr(colon + 1);
  return layout;
}

// What a rank may use of the machine that was calibrated with all its threads.
double share_of(const RankOptions& rank, DeviceType device) {
  const RankPlaces places = rank_places(rank.world);
  if (device == DeviceType::cpu || !places.processes) return 1.0 / std::max(1, places.here);
  return 1.0 / std::max(1, places.here / std::max(1, places.gpus));
}

std::optional<double> step_of_ranks(const TrainRequest& run, const MemoryRequest& request,
                                    const RankOptions& rank) {
  const std::optional<KnownLink> link = find_link(run);
  const StepClock clock = clock_of(run.results, run.device, 0, policy_of(request.layout.precision).compute);
  if (!link || clock.nominal || !clock.model.calibrated()) return std::nullopt;
  MemoryRequest asked = request;
  asked.evaluates = false;
  const LinkModel between = link_of_a_rank(*link, rank.world);
  const PlanMachine machine{clock.model,
                            {.node = rank.world, .inside = between, .between = between},
                            share_of(rank, run.device.target)};
  return predict_step(layout_of(request, rank.world), record_schedule(asked, rank), machine,
                      request.step.micro_steps, request.sharing)
      .parts.total();
}

}  // namespace

std::optional<double> predict_run_step(const TrainRequest& run, const MemoryRequest& request,
                                       const RankOptions& rank) {
  if (rank.world > 1) return step_of_ranks(run, request, rank);
  const StepClock clock = clock_of(run.results, run.device, rank.threads, DType::f32);
  if (!clock.calibrated()) return std::nullopt;  // a schedule takes a run on meta
  return step_alone(clock, request, rank);
}

}  // namespace kiln
