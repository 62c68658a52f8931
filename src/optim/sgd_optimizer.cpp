#include "optim/sgd_optimizer.h"

#include "ops/sgd/sgd.h"

namespace kiln {

SgdOptimizer::SgdOptimizer(RankContext& ctx, std::vector<ParamSpan> spans, const SgdOptions& options)
    : Optimizer(std::move(spans)), options_(options) {
  if (options_.momentum == 0) return;
  const DType dtype = spans_.empty() ? DType::f32 : stat_dtype(spans_.front().value.dtype());
  keep_state(ctx, "momentum", dtype);
}

void SgdOptimizer::step(RankContext& ctx, const Tensor& scalars) {
  const Tensor& momentum = state("momentum");
  int64_t at = 0;
  for (const ParamSpan& s : spans_) {
    const int64_t n = s.value.numel();
    sgd(ctx, s.value, s.low, s.grad, momentum.defined() ? momentum.narrow(0, at, n) : Tensor(), scalars,
        options_.momentum, s.decay ? options_.decay : 0.0);
    at += n;
  }
}

}  // namespace kiln
