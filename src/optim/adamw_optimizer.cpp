#include "optim/adamw_optimizer.h"

#include "ops/adamw/adamw.h"

namespace kiln {

AdamWOptimizer::AdamWOptimizer(RankContext& ctx, std::vector<ParamSpan> spans, const AdamWOptions& options)
    : spans_(std::move(spans)), options_(options) {
  int64_t total = 0;
  DType dtype = DType::f32;
  for (const ParamSpan& s : spans_) {
    total += s.value.numel();
    dtype = stat_dtype(s.value.dtype());
  }
  m_ = ctx.zeros({total}, dtype, Tag::optim);
  v_ = ctx.zeros({total}, dtype, Tag::optim);
}

void AdamWOptimizer::step(RankContext& ctx, const Tensor& scalars) {
  int64_t at = 0;
  for (const ParamSpan& s : spans_) {
    const int64_t n = s.value.numel();
    adamw(ctx, s.value, s.low, s.grad, m_.narrow(0, at, n), v_.narrow(0, at, n), scalars, options_.beta1,
          options_.beta2, options_.eps, s.decay ? options_.decay : 0.0);
    at += n;
  }
}

}  // namespace kiln
