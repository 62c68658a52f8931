// SGD with momentum and decay: g = clip * grad + decay w; b = momentum b + g; w -= lr b. The order is
// PyTorch's, without dampening: decay is part of the gradient, so momentum carries it along. Learning rate
// and clip factor (over the loss scale) are read from the step's record on the device; when that record says
// the step was not finite, nothing is written.
#pragma once

#include "ops/step_scalars/step_scalars.h"
#include "ops/variant.h"

namespace kiln {

struct SgdProblem {
  int64_t count;
  DType dtype;  // of the weights: fp32, or bf16 with a low half, or fp64
  DType grad_dtype;
  bool split;  // weights are bf16 high + int16 low = exact fp32
  double momentum, decay;
};

struct SgdForward {
  SgdProblem p;
  const Tensor& value;    // flat
  const Tensor& low;      // flat int16, undefined unless split
  const Tensor& grad;     // flat
  const Tensor& b;        // flat, fp32 (fp64 for fp64 weights); undefined without momentum
  const Tensor& scalars;  // one StepScalars
};

struct SgdOp {
  static constexpr const char* kName = "sgd";
  static constexpr OpKind kKind = OpKind::optimizer;
  static constexpr const char* kSummary = "SGD with momentum and decay, on one parameter";
  using Problem = SgdProblem;
  using Forward = SgdForward;
  using Backward = NoBackward;
  static std::span<const Variant<SgdOp>> rows();
  static Problem example() { return {65536, DType::f32, DType::f32, false, 0.9, 0.01}; }
};

// One element, the same on both devices. A is double for fp64 weights, float otherwise.
template <class A>
struct SgdStep {
  A lr, factor, momentum, decay;

  KILN_HD SgdStep(const SgdProblem& p, const StepScalars& s)
      : lr(static_cast<A>(s.lr)),
        factor(static_cast<A>(s.grad_factor())),
        momentum(static_cast<A>(p.momentum)),
        decay(static_cast<A>(p.decay)) {}

  // `b` is null without momentum.
  KILN_HD A update(A w, A g, A* b) const {
    A step = factor * g + decay * w;
    if (b != nullptr) step = *b = momentum * *b + step;
    return w - lr * step;
  }
};

// All tensors are flat and of equal length; `b` is undefined when momentum is 0.
void sgd(RankContext& ctx, const Tensor& value, const Tensor& low, const Tensor& grad, const Tensor& b,
         const Tensor& scalars, double momentum, double decay, std::string_view variant = {});

void sgd_cpu_naive(RankContext& ctx, const SgdForward& f);
void sgd_cuda_naive(RankContext& ctx, const SgdForward& f);

}  // namespace kiln
