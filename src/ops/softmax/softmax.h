// y = exp(x - max(x)) / sum(exp(x - max(x))), each row by itself, sums in fp32 (fp64 for fp64 rows). The
// maximum makes no difference to the result; it keeps exp from overflowing.
#pragma once

#include "ops/variant.h"

namespace kiln {

class BackwardPass;

struct SoftmaxProblem {
  int64_t rows, cols;
  DType dtype;
  bool vectorizable = true;  // all tensors of the pass, and all rows of each
};

struct SoftmaxForward {
  SoftmaxProblem p;
  const Tensor& x;  // [rows, cols]
  const Tensor& y;  // [rows, cols]
};

struct SoftmaxBackward {
  SoftmaxProblem p;
  const Tensor& dy;
  const Tensor& y;
  GradSlot dx;
};

struct SoftmaxOp {
  static constexpr const char* kName = "softmax";
  static constexpr OpKind kKind = OpKind::softmax;
  static constexpr const char* kSummary = "y = exp(x) / sum(exp(x)) over the last axis";
  using Problem = SoftmaxProblem;
  using Forward = SoftmaxForward;
  using Backward = SoftmaxBackward;
  static std::span<const Variant<SoftmaxOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {128, 256, DType::f32}; }
};

// x [..., C], C at least 1. Saves y.
Tensor softmax(RankContext& ctx, const Tensor& x, std::string_view variant = {});

void softmax_cpu_naive_forward(RankContext& ctx, const SoftmaxForward& f);
void softmax_cpu_naive_backward(RankContext& ctx, const SoftmaxBackward& b);
void softmax_cpu_fused_forward(RankContext& ctx, const SoftmaxForward& f);
void softmax_cpu_fused_backward(RankContext& ctx, const SoftmaxBackward& b);
void softmax_cuda_naive_forward(RankContext& ctx, const SoftmaxForward& f);
void softmax_cuda_naive_backward(RankContext& ctx, const SoftmaxBackward& b);
void softmax_cuda_fused_forward(RankContext& ctx, const SoftmaxForward& f);
void softmax_cuda_fused_backward(RankContext& ctx, const SoftmaxBackward& b);

}  // namespace kiln
