// A matrix and a vector: what norms are composed of. Values per row are statistics and therefore fp32 for
// narrower data (stat_dtype).
//
//   mul_rows     y[r, c] = x[r, c] s[r]
//   mul_columns  y[r, c] = x[r, c] w[c], w a parameter
//   row_mean     m[r]    = mean over c of x[r, c]
#pragma once

#include "ops/variant.h"

namespace kiln {

class BackwardPass;

struct BroadcastProblem {
  int64_t rows, cols;
  DType dtype;
};

struct MulRowsForward {
  BroadcastProblem p;
  const Tensor& x;  // [rows, cols]
  const Tensor& s;  // [rows]
  const Tensor& y;  // [rows, cols]
};

struct MulRowsBackward {
  BroadcastProblem p;
  const Tensor& dy;
  const Tensor& x;
  const Tensor& s;
  GradSlot dx;
  GradSlot ds;
};

struct MulColumnsForward {
  BroadcastProblem p;
  const Tensor& x;       // [rows, cols]
  const Tensor& weight;  // [cols]
  const Tensor& y;       // [rows, cols]
};

struct MulColumnsBackward {
  BroadcastProblem p;
  const Tensor& dy;
  const Tensor& x;
  const Tensor& weight;
  GradSlot dx;
  GradSlot dweight;
  const Tensor& workspace;  // fused: [chunks, cols] partial sums of dweight
};

struct RowMeanForward {
  BroadcastProblem p;
  const Tensor& x;     // [rows, cols]
  const Tensor& mean;  // [rows]
};

struct RowMeanBackward {
  BroadcastProblem p;
  const Tensor& dmean;
  GradSlot dx;
};

struct MulRowsOp {
  static constexpr const char* kName = "mul_rows";
  static constexpr OpKind kKind = OpKind::elementwise;
  static constexpr const char* kSummary = "y[r, c] = x[r, c] s[r]";
  using Problem = BroadcastProblem;
  using Forward = MulRowsForward;
  using Backward = MulRowsBackward;
  static std::span<const Variant<MulRowsOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {128, 256, DType::f32}; }
  static Cost cost(const BroadcastProblem& p, Pass pass);
};

struct MulColumnsOp {
  static constexpr const char* kName = "mul_columns";
  static constexpr OpKind kKind = OpKind::elementwise;
  static constexpr const char* kSummary = "y[r, c] = x[r, c] w[c]";
  using Problem = BroadcastProblem;
  using Forward = MulColumnsForward;
  using Backward = MulColumnsBackward;
  static std::span<const Variant<MulColumnsOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {128, 256, DType::f32}; }
  static Cost cost(const BroadcastProblem& p, Pass pass);
};

struct RowMeanOp {
  static constexpr const char* kName = "row_mean";
  static constexpr OpKind kKind = OpKind::reduction;
  static constexpr const char* kSummary = "m[r] = mean over c of x[r, c]";
  using Problem = BroadcastProblem;
  using Forward = RowMeanForward;
  using Backward = RowMeanBackward;
  static std::span<const Variant<RowMeanOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {128, 256, DType::f32}; }
  static Cost cost(const BroadcastProblem& p, Pass pass);
};

// x's shape without its last axis: the shape of one value a row.
Shape row_shape(const Shape& x);

// x [..., C] and s [...]. Saves both.
Tensor mul_rows(RankContext& ctx, const Tensor& x, const Tensor& s, std::string_view variant = {});
// x [..., C] and weight [C]. Saves x.
Tensor mul_columns(RankContext& ctx, const Tensor& x, const ParamRef& weight, std::string_view variant = {});
// x [..., C] -> [...]. Saves nothing.
Tensor row_mean(RankContext& ctx, const Tensor& x, std::string_view variant = {});

void mul_rows_cpu_naive_forward(RankContext& ctx, const MulRowsForward& f);
void mul_rows_cpu_naive_backward(RankContext& ctx, const MulRowsBackward& b);
void mul_rows_cpu_fused_forward(RankContext& ctx, const MulRowsForward& f);
void mul_rows_cpu_fused_backward(RankContext& ctx, const MulRowsBackward& b);
void mul_columns_cpu_naive_forward(RankContext& ctx, const MulColumnsForward& f);
void mul_columns_cpu_naive_backward(RankContext& ctx, const MulColumnsBackward& b);
void mul_columns_cpu_fused_forward(RankContext& ctx, const MulColumnsForward& f);
void mul_columns_cpu_fused_backward(RankContext& ctx, const MulColumnsBackward& b);
void row_mean_cpu_naive_forward(RankContext& ctx, const RowMeanForward& f);
void row_mean_cpu_naive_backward(RankContext& ctx, const RowMeanBackward& b);
void row_mean_cpu_fused_forward(RankContext& ctx, const RowMeanForward& f);
void row_mean_cpu_fused_backward(RankContext& ctx, const RowMeanBackward& b);
void mul_rows_cuda_naive_forward(RankContext& ctx, const MulRowsForward& f);
void mul_rows_cuda_naive_backward(RankContext& ctx, const MulRowsBackward& b);
void mul_columns_cuda_naive_forward(RankContext& ctx, const MulColumnsForward& f);
void mul_columns_cuda_naive_backward(RankContext& ctx, const MulColumnsBackward& b);
void row_mean_cuda_naive_forward(RankContext& ctx, const RowMeanForward& f);
void row_mean_cuda_naive_backward(RankContext& ctx, const RowMeanBackward& b);

}  // namespace kiln
