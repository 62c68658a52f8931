// Functions of two tensors of one shape, element by element: mul and sub. (The sum has its own folder,
// ops/add: its gradient moves no bytes.)
#pragma once

#include "ops/variant.h"

namespace kiln {

class BackwardPass;

struct BinaryProblem {
  int64_t rows, cols;
  DType dtype;
};

struct BinaryForward {
  BinaryProblem p;
  const Tensor& a;  // [rows, cols]
  const Tensor& b;  // [rows, cols]
  const Tensor& y;  // [rows, cols]
};

struct BinaryBackward {
  BinaryProblem p;
  const Tensor& dy;
  const Tensor& a;  // undefined for sub, which saves nothing
  const Tensor& b;
  GradSlot da;  // not wanted for sub: dy itself is passed on
  GradSlot db;
};

struct MulOp {
  static constexpr const char* kName = "mul";
  static constexpr OpKind kKind = OpKind::elementwise;
  static constexpr const char* kSummary = "y = a b, element by element";
  using Problem = BinaryProblem;
  using Forward = BinaryForward;
  using Backward = BinaryBackward;
  static std::span<const Variant<MulOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {128, 256, DType::f32}; }
  static Cost cost(const BinaryProblem& p, Pass pass);
};

struct SubOp {
  static constexpr const char* kName = "sub";
  static constexpr OpKind kKind = OpKind::elementwise;
  static constexpr const char* kSummary = "y = a - b";
  using Problem = BinaryProblem;
  using Forward = BinaryForward;
  using Backward = BinaryBackward;
  static std::span<const Variant<SubOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {128, 256, DType::f32}; }
  static Cost cost(const BinaryProblem& p, Pass pass);
};

// a and b of one shape [..., C], rows may be strided. mul saves both; sub saves nothing.
Tensor mul(RankContext& ctx, const Tensor& a, const Tensor& b, std::string_view variant = {});
Tensor sub(RankContext& ctx, const Tensor& a, const Tensor& b, std::string_view variant = {});

void mul_cpu_naive_forward(RankContext& ctx, const BinaryForward& f);
void mul_cpu_naive_backward(RankContext& ctx, const BinaryBackward& b);
void mul_cpu_fused_forward(RankContext& ctx, const BinaryForward& f);
void mul_cpu_fused_backward(RankContext& ctx, const BinaryBackward& b);
void sub_cpu_naive_forward(RankContext& ctx, const BinaryForward& f);
void sub_cpu_naive_backward(RankContext& ctx, const BinaryBackward& b);
void sub_cpu_fused_forward(RankContext& ctx, const BinaryForward& f);
void sub_cpu_fused_backward(RankContext& ctx, const BinaryBackward& b);
void mul_cuda_naive_forward(RankContext& ctx, const BinaryForward& f);
void mul_cuda_naive_backward(RankContext& ctx, const BinaryBackward& b);
void sub_cuda_naive_forward(RankContext& ctx, const BinaryForward& f);
void sub_cuda_naive_backward(RankContext& ctx, const BinaryBackward& b);

}  // namespace kiln
