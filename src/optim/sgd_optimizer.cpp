#include "optim/sgd_optimizer.h"

#include "ops/sgd/sgd.h"

namespace kiln {

SgdOptimizer::SgdOptimizer(RankContext& ctx, std::vector<ParamSpan> spans, const SgdOptions& options)
    : spans_(std::move(spans)), options_(options) {
  if (options_.momentum == 0) return;
  int64_t total = 0;
  DType dtype = DType::f32;
  for (const ParamSpan& s : spans_) {
    total += s.value.numel();
    dtype = stat_dtype(s.value.dtype());
  }
  b_ = ctx.zeros({total}, dtype, Tag::optim);
}

void SgdOptimizer::step(RankContext& ctx, const Tensor& scalars) {
  int64_t at = 0;
  for (const ParamSpan& s : spans_) {
    const int64_t n = s.value.numel();
    sgd(ctx, s.value, s.low, s.grad, b_.defined() ? b_.narrow(0, at, n) : Tensor(), scalars,
        options_.momentum, s.decay ? options_.decay : 0.0);
    at += n;
  }
}

}  // namespace kiln
