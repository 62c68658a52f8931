// AdamW with decoupled decay: m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
// w -= lr (m / (1-b1^t) / (sqrt(v / (1-b2^t)) + eps) + decay w), with g already multiplied by the clip
// factor and divided by the loss scale. Learning rate, step count and both factors are read from the step's
// record on the device; when that record says the step was not finite, nothing is written.
#pragma once

#include <cmath>

#include "base/exact.h"
#include "ops/step_scalars/step_scalars.h"
#include "ops/variant.h"

namespace kiln {

// Elements of a range up to `end`, from where the segment before it ends, and the rate at which they decay.
struct DecaySegment {
  int64_t end;
  double decay;
};

struct AdamWProblem {
  int64_t count;
  DType dtype;  // of the weights: fp32, bf16 with a low half or without, or fp64
  DType grad_dtype;
  bool split;  // weights are bf16 high + int16 low = exact fp32
  double beta1, beta2, eps, decay;
  DType state = stat_dtype(dtype);  // of m and v; bf16 weights may have bf16 moments
  int64_t segments = 0;             // of different decay; 0: the whole range decays at `decay`
  double power1 = 1, power2 = 1;    // beta^steps done before the record's own powers began
};

struct AdamWForward {
  AdamWProblem p;
  const Tensor& value;  // flat
  const Tensor& low;    // flat int16, undefined unless split
  const Tensor& grad;   // flat
  const Tensor& m;      // flat
  const Tensor& v;
  const Tensor& scalars;   // one StepScalars
  const Tensor& segments;  // DecaySegments, as bytes; undefined unless the problem has some
};

struct AdamWOp {
  static constexpr const char* kName = "adamw";
  static constexpr OpKind kKind = OpKind::optimizer;
  static constexpr const char* kSummary = "AdamW with decoupled decay, on one parameter or a range of many";
  using Problem = AdamWProblem;
  using Forward = AdamWForward;
  using Backward = NoBackward;
  static std::span<const Variant<AdamWOp>> rows();
  static Problem example() { return {65536, DType::f32, DType::f32, false, 0.9, 0.999, 1e-8, 0.01}; }
};

// One element, the same on both devices. A is double for fp64 weights, float otherwise.
template <class A>
struct AdamWStep {
  A lr, factor, beta1, beta2, eps, decay, correction1, correction2;

  KILN_HD AdamWStep(const AdamWProblem& p, const StepScalars& s)
      : lr(static_cast<A>(s.lr)),
        factor(static_cast<A>(s.grad_factor())),
        beta1(static_cast<A>(p.beta1)),
        beta2(static_cast<A>(p.beta2)),
        eps(static_cast<A>(p.eps)),
        decay(static_cast<A>(p.decay)),
        correction1(static_cast<A>(1 - s.rate1_power * p.power1)),
        correction2(static_cast<A>(1 - s.rate2_power * p.power2)) {}

  KILN_HD A update(A w, A g, A& m, A& v) const {
    using exact::mul;  // the same bits whichever kernel this is in
    g = mul(g, factor);
    m = mul(beta1, m) + mul(1 - beta1, g);
    v = mul(beta2, v) + mul(mul(1 - beta2, g), g);
    return w - mul(lr, (m / correction1) / (std::sqrt(v / correction2) + eps) + mul(decay, w));
  }
};

// All tensors are flat and of equal length.
struct AdamWTensors {
  Tensor value;
  Tensor low;  // undefined unless split
  Tensor grad, m, v;
};

// What the record's powers of beta are multiplied by: other than 1 for those who took part before they began.
struct BetaPowers {
  double one = 1, two = 1;
  friend bool operator==(const BetaPowers&, const BetaPowers&) = default;
};

// One parameter, which decays at one rate.
void adamw(RankContext& ctx, const AdamWTensors& t, const Tensor& scalars, double beta1, double beta2,
           double eps, double decay, std::string_view variant = {}, const BetaPowers& before = {});

// A range of many parameters. Only variants for which adamw_takes_ranges is true can run it.
void adamw_range(RankContext& ctx, const AdamWTensors& t, const Tensor& scalars, double beta1, double beta2,
                 double eps, const Tensor& segments, std::string_view variant = {},
                 const BetaPowers& before = {});
bool adamw_takes_ranges(RankContext& ctx, const AdamWTensors& t);  // the variant this run would take
Tensor make_decay_segments(RankContext& ctx, std::span<const DecaySegment> segments);

void adamw_cpu_fused(RankContext& ctx, const AdamWForward& f);
void adamw_cpu_naive(RankContext& ctx, const AdamWForward& f);
void adamw_cuda_fused(RankContext& ctx, const AdamWForward& f);
void adamw_cuda_naive(RankContext& ctx, const AdamWForward& f);

}  // namespace kiln
