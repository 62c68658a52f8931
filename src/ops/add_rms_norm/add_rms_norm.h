// sum = x + residual; y = sum / sqrt(mean(sum^2) + eps) * w: a residual connection and the norm that follows
// it. The norm reads the sum as it is stored, rounded, so that this is add and rms_norm to the bit of their
// formats.
#pragma once

#include "ops/rms_norm/rms_norm.h"

namespace kiln {

struct AddRmsNormForward {
  RmsNormProblem p;
  const Tensor& x;         // [rows, cols]
  const Tensor& residual;  // [rows, cols]
  const Tensor& weight;    // [cols]
  const Tensor& sum;       // [rows, cols]
  const Tensor& y;         // [rows, cols]
  const Tensor& rstd;      // [rows]
};

struct AddRmsNormOp {
  static constexpr const char* kName = "add_rms_norm";
  static constexpr OpKind kKind = OpKind::norm;
  static constexpr const char* kSummary = "sum = x + residual; y = rms_norm(sum)";
  using Problem = RmsNormProblem;
  using Forward = AddRmsNormForward;
  // That of rms_norm: x is the sum, and dx starts as the sum's own gradient, to which the norm's is added.
  using Backward = RmsNormBackward;
  static std::span<const Variant<AddRmsNormOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {128, 256, DType::f32, 1e-5f}; }
};

struct AddRmsNormResult {
  Tensor sum, normed;
};

// x and residual of one shape [..., C], weight [C]. Saves the sum and rstd. Both inputs have one gradient and
// share it.
AddRmsNormResult add_rms_norm(RankContext& ctx, const Tensor& x, const Tensor& residual,
                              const ParamRef& weight, float eps, std::string_view variant = {});

void add_rms_norm_cpu_naive_forward(RankContext& ctx, const AddRmsNormForward& f);
void add_rms_norm_cpu_fused_forward(RankContext& ctx, const AddRmsNormForward& f);
void add_rms_norm_cuda_naive_forward(RankContext& ctx, const AddRmsNormForward& f);
void add_rms_norm_cuda_fused_forward(RankContext& ctx, const AddRmsNormForward& f);

}  // namespace kiln
