// y = silu(gate) * up, silu(g) = g / (1 + exp(-g)). Gate and up are usually two column ranges of one packed
// projection, so rows may be strided.
#pragma once

#include "ops/variant.h"

namespace kiln {

class BackwardPass;

struct SwigluProblem {
  int64_t rows, cols;
  DType dtype;
  bool vectorizable = true;  // all tensors of the pass, and all rows of each
};

struct SwigluForward {
  SwigluProblem p;
  const Tensor& gate;  // [rows, cols]
  const Tensor& up;    // [rows, cols]
  const Tensor& y;     // [rows, cols]
};

struct SwigluBackward {
  SwigluProblem p;
  const Tensor& dy;
  const Tensor& gate;
  const Tensor& up;
  GradSlot dgate;
  GradSlot dup;
};

struct SwigluOp {
  static constexpr const char* kName = "swiglu";
  static constexpr OpKind kKind = OpKind::elementwise;
  static constexpr const char* kSummary = "y = silu(gate) * up";
  using Problem = SwigluProblem;
  using Forward = SwigluForward;
  using Backward = SwigluBackward;
  static std::span<const Variant<SwigluOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {128, 256, DType::f32}; }
};

// gate and up of one shape [..., F]. Saves both; the parts of `composed` save silu(gate) as well.
Tensor swiglu(RankContext& ctx, const Tensor& gate, const Tensor& up, std::string_view variant = {});

void swiglu_cpu_naive_forward(RankContext& ctx, const SwigluForward& f);
void swiglu_cpu_naive_backward(RankContext& ctx, const SwigluBackward& b);
void swiglu_cpu_fused_forward(RankContext& ctx, const SwigluForward& f);
void swiglu_cpu_fused_backward(RankContext& ctx, const SwigluBackward& b);
void swiglu_cuda_fused_forward(RankContext& ctx, const SwigluForward& f);
void swiglu_cuda_fused_backward(RankContext& ctx, const SwigluBackward& b);
void swiglu_cuda_naive_forward(RankContext& ctx, const SwigluForward& f);
void swiglu_cuda_naive_backward(RankContext& ctx, const SwigluBackward& b);

}  // namespace kiln
