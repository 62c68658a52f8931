#include "optim/adamw_optimizer.h"

namespace kiln {

AdamWOptimizer::AdamWOptimizer(RankContext& ctx, std::vector<ParamSpan> spans, const AdamWOptions& options)
    : spans_(std::move(spans)), options_(options) {
  int64_t total = 0;
  DType dtype = DType::f32;
  for (const ParamSpan& s : spans_) {
    total += s.value.numel();
    dtype = s.state;
  }
  m_ = ctx.zeros({total}, dtype, Tag::optim);
  v_ = ctx.zeros({total}, dtype, Tag::optim);
  find_runs(ctx);
}

AdamWTensors AdamWOptimizer::tensors_of(const ParamSpan& s, int64_t at) const {
  const int64_t n = s.value.numel();
  return {s.value, s.low, s.grad, m_.narrow(0, at, n), v_.narrow(0, at, n)};
}

void AdamWOptimizer::find_runs(RankContext& ctx) {
  std::vector<DecaySegment> segments;
  auto close = [&] {
    if (!segments.empty()) runs_.back().segments = make_decay_segments(ctx, segments);
    segments.clear();
  };
  int64_t at = 0;
  for (const ParamSpan& s : spans_) {
    const AdamWTensors one = tensors_of(s, at);
    const double decay = s.decay ? options_.decay : 0.0;
    at += s.value.numel();
    if (!runs_.empty()) {
      AdamWTensors& t = runs_.back().tensors;
      const AdamWTensors both{t.value.joined_with(one.value), t.low.joined_with(one.low),
                              t.grad.joined_with(one.grad), t.m.joined_with(one.m), t.v.joined_with(one.v)};
      if (both.value.defined() && both.grad.defined() && both.low.defined() == one.low.defined()) {
        t = both;
        segments.push_back({t.value.numel(), decay});
        continue;
      }
    }
    close();
    runs_.push_back({one, {}});
    segments.push_back({s.value.numel(), decay});
  }
  close();
}

void AdamWOptimizer::step(RankContext& ctx, const Tensor& scalars) {
  const AdamWOptions& o = options_;
  if (!runs_.empty() && adamw_takes_ranges(ctx, runs_.front().tensors)) {
    for (const Run& r : runs_) adamw_range(ctx, r.tensors, scalars, o.beta1, o.beta2, o.eps, r.segments);
    return;
  }
  int64_t at = 0;
  for (const ParamSpan& s : spans_) {
    adamw(ctx, tensors_of(s, at), scalars, o.beta1, o.beta2, o.eps, s.decay ? o.decay : 0.0);
    at += s.value.numel();
  }
}

}  // namespace kiln
