#include "studies/ceilings.h"

#include <algorithm>

#include "device/cpu/cpu_features.h"
#include "device/gpu_info.h"
#include "perf/timing/device_ceilings.h"
#include "studies/shared_ceilings.h"

namespace kiln {
namespace {

NamedRate cpu_flops(const CpuCeilings& c, DType dtype, CpuIsa isa) {
  const double rate = c.flops_for(dtype, isa).all;
  if (dtype == DType::bf16 && c.amx && rate == c.amx->all) return {"amx", rate};
  if (dtype == DType::bf16 && c.bf16_dot && rate == c.bf16_dot->all) return {"dot", rate};
  return {"fma", rate};
}

// On a GPU the best rates to compare with: a large device copy, and the library's GEMM.
Ceilings gpu_ceilings(RankContext& ctx, const std::vector<DType>& dtypes) {
  const DeviceCeilings measured = measure_device_ceilings(ctx, {.dtypes = dtypes});
  Ceilings c;
  c.copy = measured.copy;
  for (DType t : dtypes) c.flops[t] = {"gemm", measured.flops_for(t)};
  return c;
}

}  // namespace

double cache_bytes(const Device& device) {
  if (device.type == DeviceType::cpu) return static_cast<double>(last_level_cache_bytes());
  for (const GpuInfo& gpu : list_gpus()) {
    if (gpu.index == device.index) return static_cast<double>(gpu.l2_bytes);
  }
  return 0;
}

CeilingWatch::CeilingWatch(RankContext& ctx, const std::vector<DType>& dtypes) : ctx_(ctx), dtypes_(dtypes) {
  if (on_cpu() && !shared_ceilings(ctx, dtypes)) cpu_ = measure(0.04);
}

Ceilings CeilingWatch::finish() {
  if (const auto shared = shared_ceilings(ctx_, dtypes_)) return *shared;
  Ceilings c;
  if (!on_cpu()) {
    c = gpu_ceilings(ctx_, dtypes_);
    share_ceilings(ctx_, dtypes_, c);
    return c;
  }
  cpu_ = best_of(cpu_, measure(0.02));
  c.copy = cpu_.copy.all;
  for (DType t : dtypes_) c.flops[t] = cpu_flops(cpu_, t, ctx_.traits().isa);
  share_ceilings(ctx_, dtypes_, c);
  return c;
}

CpuCeilings CeilingWatch::measure(double seconds) {
  return measure_cpu_ceilings(ctx_.pool(), ctx_.traits().isa, {.seconds_each = seconds, .one_thread = false});
}

void set_bound(BenchRow& row, const Ceilings& c, const Device& device) {
  const NamedRate& flops = c.flops.at(row.dtype);
  const double by_bytes = row.cost.bytes / c.copy, by_flops = row.cost.flops / flops.per_second;
  const bool copy = by_bytes >= by_flops;
  row.bound = copy ? "copy" : flops.name;
  row.ceiling = copy ? c.copy : flops.per_second;
  row.achieved = copy ? row.bytes_per_second() : row.flops_per_second();
  row.ratio = row.achieved / row.ceiling;
  row.in_cache = row.cost.bytes < cache_bytes(device);
  // On a GPU several sets of tensors alternate, so that none is still in the cache.
  const bool stays = row.in_cache && device.type == DeviceType::cpu;
  row.cached_roofline = by_flops;
  auto seconds = [&](const Cost& cost) {
    return std::max(cost.bytes / c.copy, cost.flops / flops.per_second);
  };
  row.own_roofline = row.roofline = seconds(row.cost);
  for (const Cost& other : row.others) {
    row.roofline = std::min(row.roofline, seconds(other));
    row.cached_roofline = std::min(row.cached_roofline, other.flops / flops.per_second);
  }
  if (!stays) row.cached_roofline = std::min(row.own_roofline, row.roofline);
}

}  // namespace kiln
