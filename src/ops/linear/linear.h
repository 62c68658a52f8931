// y = x W^T. Row-major, weights [out, in]. Three matmuls carry all of training: forward, dgrad
// (dx = dy W) and wgrad (dW = dy^T x).
#pragma once

#include "ops/variant.h"

namespace kiln {

class BackwardPass;

struct LinearProblem {
  int64_t rows;  // all axes of x but the last
  int64_t in, out;
  DType dtype;
};

struct LinearForward {
  LinearProblem p;
  const Tensor& x;       // [rows, in]
  const Tensor& weight;  // [out, in]
  const Tensor& y;       // [rows, out]
  const Tensor& workspace;
};

struct LinearBackward {
  LinearProblem p;
  const Tensor& dy;      // [rows, out]
  const Tensor& x;       // [rows, in]
  const Tensor& weight;  // [out, in]
  GradSlot dx;           // [rows, in], maybe not wanted
  GradSlot dweight;      // [out, in], maybe not wanted; may be wider than dtype
  const Tensor& workspace;
};

struct LinearOp {
  static constexpr const char* kName = "linear";
  static constexpr OpKind kKind = OpKind::gemm;
  static constexpr const char* kSummary = "y = x W^T";
  using Problem = LinearProblem;
  using Forward = LinearForward;
  using Backward = LinearBackward;
  static std::span<const Variant<LinearOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {128, 256, 256, DType::f32}; }
};

// x [..., in] and weight [out, in] give y [..., out]. Saves x.
Tensor linear(RankContext& ctx, const Tensor& x, const ParamRef& weight, std::string_view variant = {});

void linear_cpu_naive_forward(RankContext& ctx, const LinearForward& f);
void linear_cpu_naive_backward(RankContext& ctx, const LinearBackward& b);
std::string linear_cpu_small_m_unsupported(const LinearProblem& p, const DeviceTraits& traits);
std::size_t linear_cpu_small_m_workspace(const LinearProblem& p, Pass pass);
void linear_cpu_small_m_forward(RankContext& ctx, const LinearForward& f);
std::size_t linear_cpu_packed_workspace(const LinearProblem& p, Pass pass);
void linear_cpu_packed_forward(RankContext& ctx, const LinearForward& f);
void linear_cpu_packed_backward(RankContext& ctx, const LinearBackward& b);
void linear_cuda_lt_forward(RankContext& ctx, const LinearForward& f);
void linear_cuda_lt_backward(RankContext& ctx, const LinearBackward& b);
void linear_cuda_lt_tf32_forward(RankContext& ctx, const LinearForward& f);
void linear_cuda_lt_tf32_backward(RankContext& ctx, const LinearBackward& b);

}  // namespace kiln
