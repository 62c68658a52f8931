// y = (x - mean(x)) / sqrt(var(x) + eps) * w + b, each row by itself; var is the mean of (x - mean)^2.
// Statistics in fp32 (fp64 for fp64 rows).
#pragma once

#include "ops/variant.h"

namespace kiln {

class BackwardPass;

struct LayerNormProblem {
  int64_t rows, cols;
  DType dtype;
  float eps;
  bool vectorizable = true;  // all tensors of the pass, and all rows of each
};

struct LayerNormForward {
  LayerNormProblem p;
  const Tensor& x;       // [rows, cols]
  const Tensor& weight;  // [cols]
  const Tensor& bias;    // [cols]
  const Tensor& y;       // [rows, cols]
  const Tensor& mean;    // [rows]
  const Tensor& rstd;    // [rows], 1 / sqrt(var + eps)
};

struct LayerNormBackward {
  LayerNormProblem p;
  const Tensor& dy;
  const Tensor& x;
  const Tensor& weight;
  const Tensor& mean;
  const Tensor& rstd;
  GradSlot dx;
  GradSlot dweight;
  GradSlot dbias;
  const Tensor&
      workspace;  // fused: partial sums of dweight and dbias; [chunks, 2, cols], CUDA: [2, blocks, cols]
};

struct LayerNormOp {
  static constexpr const char* kName = "layer_norm";
  static constexpr OpKind kKind = OpKind::norm;
  static constexpr const char* kSummary = "y = (x - mean(x)) / sqrt(var(x) + eps) * w + b";
  using Problem = LayerNormProblem;
  using Forward = LayerNormForward;
  using Backward = LayerNormBackward;
  static std::span<const Variant<LayerNormOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {128, 256, DType::f32, 1e-5f}; }
};

// x [..., C], weight [C] and bias [C]. Saves x, mean and rstd.
Tensor layer_norm(RankContext& ctx, const Tensor& x, const ParamRef& weight, const ParamRef& bias, float eps,
                  std::string_view variant = {});

void layer_norm_cpu_naive_forward(RankContext& ctx, const LayerNormForward& f);
void layer_norm_cpu_naive_backward(RankContext& ctx, const LayerNormBackward& b);
void layer_norm_cpu_fused_forward(RankContext& ctx, const LayerNormForward& f);
void layer_norm_cpu_fused_backward(RankContext& ctx, const LayerNormBackward& b);
void layer_norm_cuda_naive_forward(RankContext& ctx, const LayerNormForward& f);
void layer_norm_cuda_naive_backward(RankContext& ctx, const LayerNormBackward& b);
void layer_norm_cuda_fused_forward(RankContext& ctx, const LayerNormForward& f);
void layer_norm_cuda_fused_backward(RankContext& ctx, const LayerNormBackward& b);

}  // namespace kiln
