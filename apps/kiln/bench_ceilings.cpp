#include "kiln/bench_ceilings.h"

#include "autograd/tape.h"
#include "device/cpu/cpu_features.h"
#include "ops/linear/linear.h"

namespace kiln::cli {
namespace {

NamedRate cpu_flops(const CpuCeilings& c, DType dtype, CpuIsa isa) {
  const double rate = c.flops_for(dtype, isa).all;
  if (dtype == DType::bf16 && c.amx && rate == c.amx->all) return {"amx", rate};
  if (dtype == DType::bf16 && c.bf16_dot && rate == c.bf16_dot->all) return {"dot", rate};
  return {"fma", rate};
}

// On a GPU the best there is to compare with: a large device copy, and the library's matrix product.
Ceilings gpu_ceilings(RankContext& ctx, const std::vector<DType>& dtypes) {
  Ceilings c;
  const TimingOptions brief{.warmups = 3, .min_samples = 10, .min_seconds = 0.05};
  const std::function<void()> wait = [&] { ctx.synchronize(); };
  {
    const Tensor from = ctx.zeros({1 << 30}, DType::u8), to = ctx.zeros({1 << 30}, DType::u8);
    const auto copy = [&] {
      ctx.backend().copy_within(to.raw(), from.raw(), to.bytes().value, ctx.compute());
    };
    c.copy = 2 * static_cast<double>(to.bytes().value) / time_work({copy, {}, wait}, brief).min;
  }
  for (DType dtype : dtypes) {
    constexpr int64_t kSize = 4096;
    Param w;
    w.name = "ceiling";
    w.shape = {kSize, kSize};
    w.value = ctx.zeros(w.shape, dtype);
    const Tensor x = ctx.zeros({kSize, kSize}, dtype);
    const GradModeGuard off(ctx, GradMode::off);
    const double seconds = time_work({[&] { linear(ctx, x, w); }, {}, wait}, brief).min;
    c.flops[dtype] = {"gemm", 2.0 * kSize * kSize * kSize / seconds};
  }
  return c;
}

double cache_bytes(const Device& device) {
  if (device.type != DeviceType::cpu) return 0;
  return static_cast<double>(last_level_cache_bytes());
}

}  // namespace

CeilingWatch::CeilingWatch(RankContext& ctx, const std::vector<DType>& dtypes) : ctx_(ctx), dtypes_(dtypes) {
  if (on_cpu()) cpu_ = measure(0.04);
}

Ceilings CeilingWatch::finish() {
  if (!on_cpu()) return gpu_ceilings(ctx_, dtypes_);
  cpu_ = best_of(cpu_, measure(0.02));
  Ceilings c;
  c.copy = cpu_.copy.all;
  for (DType t : dtypes_) c.flops[t] = cpu_flops(cpu_, t, ctx_.traits().isa);
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
}

}  // namespace kiln::cli
