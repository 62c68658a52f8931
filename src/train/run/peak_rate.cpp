#include "train/run/peak_rate.h"

#include <algorithm>

#include "base/error.h"
#include "device/cpu/host_limits.h"
#include "device/gpu_info.h"
#include "dist/launch/rank_env.h"
#include "perf/timing/ceilings.h"
#include "perf/timing/device_ceilings.h"

namespace kiln {
namespace {

// On a GPU that the model fills there may be no memory for it: then the rate is unknown, and the run
// continues.
double peak_flops_of_gpu(const Device& device, DType dtype) {
  RankOptions options;
  options.device = device;
  try {
    RankContext own(options);  // its memory is not the run's
    return measure_device_ceilings(
               own, {.dtypes = {dtype}, .copy = {1 << 20}, .product = 4096, .seconds_each = 0.01})
        .flops_for(dtype);
  } catch (const Error&) {
    return 0;
  }
}

double peak_of_this_rank(RankContext& ctx, DType dtype) {
  if (ctx.device().type == DeviceType::cuda) return peak_flops_of_gpu(ctx.device(), dtype);
  const CpuIsa isa = ctx.traits().isa;
  return measure_cpu_ceilings(ctx.pool(), isa, {.seconds_each = 0.02, .one_thread = false, .copy = false})
      .flops_for(dtype, isa)
      .all;
}

}  // namespace

RankPlaces rank_places(int world) {
  const RankEnv env = read_rank_env();
  RankPlaces places;
  places.world = world;
  places.processes = env.world == world && world > 1;
  places.here = places.processes ? std::clamp(env.local_world, 1, world) : world;
  places.cores = std::max(1, read_host_limits().cpus_usable);
  std::string why;
  places.gpus = static_cast<int>(list_gpus(&why).size());
  return places;
}

double peak_of_ranks(double of_one, DeviceType device, int threads, const RankPlaces& p) {
  const double machines = static_cast<double>(p.world) / std::max(1, p.here);
  if (device == DeviceType::cuda)
    return of_one * machines * (p.processes ? std::clamp(p.gpus, 1, p.here) : 1);
  const int mine = std::min(threads, p.cores), all = std::min(threads * p.here, p.cores);
  return of_one * machines * all / std::max(1, mine);
}

double measure_peak(RankContext& ctx, DType dtype) {
  return peak_of_ranks(peak_of_this_rank(ctx, dtype), ctx.device().type, ctx.pool().threads(),
                       rank_places(ctx.world()));
}

}  // namespace kiln
