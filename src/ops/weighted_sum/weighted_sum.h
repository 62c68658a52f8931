// y[r] = sum over c of x[r, c] w[c]: one number a row. The teaching op: small enough to be followed whole in
// docs/weighted-sum.md, and with everything in it that larger kernels are made of.
#pragma once

#include "ops/variant.h"

namespace kiln {

class BackwardPass;

struct WeightedSumProblem {
  int64_t rows, cols;
  DType dtype;
};

struct WeightedSumForward {
  WeightedSumProblem p;
  const Tensor& x;       // [rows, cols]
  const Tensor& weight;  // [cols]
  const Tensor& y;       // [rows]
};

struct WeightedSumBackward {
  WeightedSumProblem p;
  const Tensor& dy;  // [rows]
  const Tensor& x;
  const Tensor& weight;
  GradSlot dx;
  GradSlot dweight;
  const Tensor& workspace;  // tiled: [row tiles, cols] partial sums of dweight
};

struct WeightedSumOp {
  static constexpr const char* kName = "weighted_sum";
  static constexpr OpKind kKind = OpKind::reduction;
  static constexpr const char* kSummary = "y[r] = sum over c of x[r, c] w[c] (docs/weighted-sum.md)";
  using Problem = WeightedSumProblem;
  using Forward = WeightedSumForward;
  using Backward = WeightedSumBackward;
  static std::span<const Variant<WeightedSumOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {128, 256, DType::f32}; }
};

// x [..., C] and weight [C] -> [...]. Saves x.
Tensor weighted_sum(RankContext& ctx, const Tensor& x, const ParamRef& weight, std::string_view variant = {});

void weighted_sum_cpu_naive_forward(RankContext& ctx, const WeightedSumForward& f);
void weighted_sum_cpu_naive_backward(RankContext& ctx, const WeightedSumBackward& b);
void weighted_sum_cpu_tiled_forward(RankContext& ctx, const WeightedSumForward& f);
void weighted_sum_cpu_tiled_backward(RankContext& ctx, const WeightedSumBackward& b);
void weighted_sum_cuda_naive_forward(RankContext& ctx, const WeightedSumForward& f);
void weighted_sum_cuda_naive_backward(RankContext& ctx, const WeightedSumBackward& b);
std::size_t weighted_sum_cpu_tiled_workspace(const WeightedSumProblem& p, Pass pass);

}  // namespace kiln
