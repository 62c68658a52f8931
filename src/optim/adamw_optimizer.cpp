#include "optim/adamw_optimizer.h"

#include <algorithm>

namespace kiln {

AdamWOptimizer::AdamWOptimizer(RankContext& ctx, std::vector<ParamSpan> spans, const AdamWOptions& options)
    : Optimizer(std::move(spans)), options_(options), before_(spans_.size()) {
  const DType dtype = spans_.empty() ? DType::f32 : spans_.front().state;
  keep_state(ctx, "m", dtype);
  keep_state(ctx, "v", dtype);
  find_runs(ctx);
}

void AdamWOptimizer::add(RankContext& ctx, std::vector<ParamSpan> more, const Tensor& scalars) {
  StepScalars s;
  if (!ctx.device().is_meta()) ctx.download(&s, scalars);
  for (BetaPowers& b : before_) b = {b.one * s.rate1_power, b.two * s.rate2_power};
  s.rate1_power = s.rate2_power = 1;
  ctx.upload(scalars, &s);
  Optimizer::add(ctx, std::move(more), scalars);
  before_.resize(spans_.size());
  find_runs(ctx);
}

bool AdamWOptimizer::resumable() const {
  return std::all_of(before_.begin(), before_.end(), [](const BetaPowers& b) { return b == BetaPowers(); });
}

AdamWTensors AdamWOptimizer::tensors_of(const ParamSpan& s, int64_t at) const {
  const int64_t n = s.value.numel();
  return {s.value, s.low, s.grad, m().narrow(0, at, n), v().narrow(0, at, n)};
}

void AdamWOptimizer::find_runs(RankContext& ctx) {
  runs_.clear();
  std::vector<DecaySegment> segments;
  auto close = [&] {
    if (segments.size() > 1) runs_.back().segments = make_decay_segments(ctx, segments);
    if (segments.size() == 1) runs_.back().decay = segments[0].decay;
    segments.clear();
  };
  int64_t at = 0;
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    const ParamSpan& s = spans_[i];
    const AdamWTensors one = tensors_of(s, at);
    const double decay = s.decay ? options_.decay : 0.0;
    at += s.value.numel();
    if (!runs_.empty() && runs_.back().before == before_[i]) {
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
    runs_.push_back({one, {}, 0, before_[i]});
    segments.push_back({s.value.numel(), decay});
  }
  close();
}

void AdamWOptimizer::step(RankContext& ctx, const Tensor& scalars) {
  const AdamWOptions& o = options_;
  if (!runs_.empty() && adamw_takes_ranges(ctx, runs_.front().tensors)) {
    for (const Run& r : runs_) {
      if (r.segments.defined())
        adamw_range(ctx, r.tensors, scalars, o.beta1, o.beta2, o.eps, r.segments, {}, r.before);
      else
        adamw(ctx, r.tensors, scalars, o.beta1, o.beta2, o.eps, r.decay, {}, r.before);
    }
    return;
  }
  int64_t at = 0;
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    const ParamSpan& s = spans_[i];
    adamw(ctx, tensors_of(s, at), scalars, o.beta1, o.beta2, o.eps, s.decay ? o.decay : 0.0, {}, before_[i]);
    at += s.value.numel();
  }
}

}  // namespace kiln
