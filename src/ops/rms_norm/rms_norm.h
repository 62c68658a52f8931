// y = x / sqrt(mean(x^2) + eps) * w, each row by itself, statistics in fp32 (fp64 for fp64 rows).
#pragma once

#include "ops/variant.h"

namespace kiln {

class BackwardPass;

struct RmsNormProblem {
  int64_t rows, cols;
  DType dtype;
  float eps;
  bool vectorizable = true;  // all tensors of the pass, and all rows of each
};

struct RmsNormForward {
  RmsNormProblem p;
  const Tensor& x;       // [rows, cols]
  const Tensor& weight;  // [cols]
  const Tensor& y;       // [rows, cols]
  const Tensor& rstd;    // [rows], 1 / sqrt(mean(x^2) + eps)
};

struct RmsNormBackward {
  RmsNormProblem p;
  const Tensor& dy;
  const Tensor& x;
  const Tensor& weight;
  const Tensor& rstd;
  GradSlot dx;
  GradSlot dweight;
  const Tensor& workspace;  // fused: [chunks, cols] partial sums of dweight
};

struct RmsNormOp {
  static constexpr const char* kName = "rms_norm";
  static constexpr OpKind kKind = OpKind::norm;
  static constexpr const char* kSummary = "y = x / sqrt(mean(x^2) + eps) * w";
  using Problem = RmsNormProblem;
  using Forward = RmsNormForward;
  using Backward = RmsNormBackward;
  static std::span<const Variant<RmsNormOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {128, 256, DType::f32, 1e-5f}; }
};

// x [..., C] and weight [C]. Saves x and rstd; the parts of `composed` save x twice (one buffer), x * rstd
// and rstd.
Tensor rms_norm(RankContext& ctx, const Tensor& x, const ParamRef& weight, float eps,
                std::string_view variant = {});

void rms_norm_cpu_naive_forward(RankContext& ctx, const RmsNormForward& f);
void rms_norm_cpu_naive_backward(RankContext& ctx, const RmsNormBackward& b);
void rms_norm_cpu_fused_forward(RankContext& ctx, const RmsNormForward& f);
void rms_norm_cpu_fused_backward(RankContext& ctx, const RmsNormBackward& b);
void rms_norm_cuda_naive_forward(RankContext& ctx, const RmsNormForward& f);
void rms_norm_cuda_naive_backward(RankContext& ctx, const RmsNormBackward& b);
void rms_norm_cuda_fused_forward(RankContext& ctx, const RmsNormForward& f);
void rms_norm_cuda_fused_backward(RankContext& ctx, const RmsNormBackward& b);

}  // namespace kiln
