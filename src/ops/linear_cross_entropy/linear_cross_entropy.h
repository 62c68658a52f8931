// The loss straight from the hidden state: cross_entropy(x W^T, targets). Fused, the logits of a few rows
// exist at a time, and the same pass that makes them turns them into dx and dW: what a vocabulary of 128k
// costs in memory is one chunk.
#pragma once

#include "ops/variant.h"

namespace kiln {

class BackwardPass;

struct LinearCrossEntropyProblem {
  int64_t rows;  // all axes of x but the last
  int64_t in, vocab;
  DType dtype;
  bool dx, dweight;        // gradients forward makes: those backward will want, none outside of recording
  int64_t chunk_rows = 0;  // fused: rows whose logits exist at a time, at most; 0: as the variant likes
};

struct LinearCrossEntropyForward {
  LinearCrossEntropyProblem p;
  const Tensor& x;        // [rows, in]
  const Tensor& weight;   // [vocab, in]
  const Tensor& targets;  // int32 [rows]
  const Tensor& loss;     // [1], stat dtype; NaN where a target is outside the vocabulary
  // Of the sum over tokens, not of the mean: small numbers would be lost in 16 bits.
  const Tensor& dx;       // [rows, in]; undefined where not wanted
  const Tensor& dweight;  // fp32 [vocab, in]; likewise
  const Tensor& count;    // [1], stat dtype: tokens that count; undefined when not recording
  const Tensor& workspace;
};

struct LinearCrossEntropyBackward {
  LinearCrossEntropyProblem p;
  const Tensor& dloss;  // [1]
  const Tensor& saved_dx;
  const Tensor& saved_dweight;
  const Tensor& count;
  GradSlot dx;       // [rows, in], maybe not wanted
  GradSlot dweight;  // [vocab, in], maybe not wanted; may be wider than dtype
};

struct LinearCrossEntropyOp {
  static constexpr const char* kName = "linear_cross_entropy";
  static constexpr OpKind kKind = OpKind::gemm_loss;
  static constexpr const char* kSummary =
      "cross_entropy(x W^T, targets); fused: the logits never exist whole";
  using Problem = LinearCrossEntropyProblem;
  using Forward = LinearCrossEntropyForward;
  using Backward = LinearCrossEntropyBackward;
  static std::span<const Variant<LinearCrossEntropyOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {128, 256, 1000, DType::f32, true, true}; }
};

// x [..., in], weight [vocab, in] and int32 targets [...] give the loss, [1] in fp32 (fp64 for fp64 x).
// Fused saves dx, dweight (fp32) and count, and neither x nor logits; its backward does not use the weight.
// Fewer `chunk_rows` than a fused variant would take by itself save memory and cost time.
Tensor linear_cross_entropy(RankContext& ctx, const Tensor& x, const ParamRef& weight, const Tensor& targets,
                            std::string_view variant = {}, int64_t chunk_rows = 0);

std::size_t linear_cross_entropy_cpu_fused_workspace(const LinearCrossEntropyProblem& p, Pass pass);
void linear_cross_entropy_cpu_fused_forward(RankContext& ctx, const LinearCrossEntropyForward& f);
void linear_cross_entropy_cpu_fused_backward(RankContext& ctx, const LinearCrossEntropyBackward& b);
void linear_cross_entropy_cuda_fused_forward(RankContext& ctx, const LinearCrossEntropyForward& f);
void linear_cross_entropy_cuda_fused_backward(RankContext& ctx, const LinearCrossEntropyBackward& b);

}  // namespace kiln
