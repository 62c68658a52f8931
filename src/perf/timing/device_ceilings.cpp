#include "perf/timing/device_ceilings.h"

#include <chrono>

#include "autograd/init_weights.h"
#include "autograd/tape.h"
#include "ops/linear/linear.h"
#include "perf/timing/queued_timing.h"

namespace kiln {
namespace {

double copy_ceiling(RankContext& ctx, Bytes bytes, const TimingOptions& timing) {
  const auto size = static_cast<int64_t>(bytes.value);
  const Tensor from = ctx.zeros({size}, DType::u8), to = ctx.zeros({size}, DType::u8);
  const auto copy = [&] { ctx.backend().copy_within(to.raw(), from.raw(), bytes.value, ctx.compute()); };
  const Timing t = time_queued(ctx, [&](const TimedCall& timed) { timed(copy, 1); }, timing);
  return 2 * static_cast<double>(bytes.value) / t.p50;
}

class VariantName final : public OpObserver {
 public:
  void on_op_begin(RankContext&, const OpEvent& e) override { name = e.variant; }
  std::string name;
};

ProductCeiling product_ceiling(RankContext& ctx, DType dtype, int64_t size, const TimingOptions& timing) {
  Param w;
  w.name = "ceiling";
  w.shape = {size, size};
  w.value = ctx.empty(w.shape, dtype);
  const Tensor x = ctx.empty({size, size}, dtype);
  const ParamInit normal{ParamInit::Kind::normal, 1, 3};
  init_weights(ctx, w.value.reshape({size * size}), {}, normal, "w", 0);
  init_weights(ctx, x.reshape({size * size}), {}, normal, "x", 0);
  const GradModeGuard off(ctx, GradMode::off);
  VariantName variant;
  ctx.add_observer(&variant);
  (void)linear(ctx, x, w);
  ctx.remove_observer(&variant);
  const auto product = [&] { (void)linear(ctx, x, w); };
  const Timing t = time_queued(ctx, [&](const TimedCall& timed) { timed(product, 1); }, timing);
  const auto n = static_cast<double>(size);
  return {dtype, variant.name, size, 2 * n * n * n / t.p50};
}

}  // namespace

double DeviceCeilings::flops_for(DType dtype) const {
  for (const ProductCeiling& p : products) {
    if (p.dtype == dtype) return p.flops_per_second;
  }
  return 0;
}

DeviceCeilings measure_device_ceilings(RankContext& ctx, const DeviceCeilingOptions& o) {
  const auto begin = std::chrono::steady_clock::now();
  const TimingOptions timing{.warmups = 3, .min_samples = 10, .min_seconds = o.seconds_each};
  DeviceCeilings c;
  c.copy = copy_ceiling(ctx, o.copy, timing);
  for (DType dtype : o.dtypes)
    c.products.push_back(product_ceiling(ctx, dtype, size_of(dtype) > 2 ? o.product / 2 : o.product, timing));
  c.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return c;
}

}  // namespace kiln
