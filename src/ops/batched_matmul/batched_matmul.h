// y = a b or y = a b^T for every batch and head. Where b has fewer heads than a, neighbouring heads of a
// share one: head h of a is multiplied by head h / (H / Hb) of b, and that head's gradient is summed over all
// of them.
//
// A stack of matrices comes in one of two layouts. [B, H, rows, cols] has its matrices one after the other;
// [B, rows, H*cols] has the heads side by side in each row, as projections leave them, so that attention
// needs no transposed copies. With one head the latter is a plain batch [B, rows, cols].
#pragma once

#include "ops/variant.h"

namespace kiln {

class BackwardPass;

struct BatchedMatmulProblem {
  int64_t B;        // batches
  int64_t H, Hb;    // heads of a and y, heads of b
  int64_t M, N, K;  // y [M, N], a [M, K], b [K, N] or, transposed, [N, K]
  DType dtype;
  bool transpose_b;
  bool a_in_columns, b_in_columns, y_in_columns;  // heads side by side in each row

  KILN_HD int64_t group() const { return H / Hb; }
  int64_t b_rows() const { return transpose_b ? N : K; }
  int64_t b_cols() const { return transpose_b ? K : N; }
};

struct BatchedMatmulForward {
  BatchedMatmulProblem p;
  const Tensor& a;
  const Tensor& b;
  const Tensor& y;
  const Tensor& workspace;
};

// da = dy b^T or dy b;  db = a^T dy, transposed dy^T a, summed over the heads that share it.
struct BatchedMatmulBackward {
  BatchedMatmulProblem p;
  const Tensor& dy;
  const Tensor& a;
  const Tensor& b;
  GradSlot da;
  GradSlot db;
  const Tensor& workspace;
};

struct BatchedMatmulOp {
  static constexpr const char* kName = "batched_matmul";
  static constexpr OpKind kKind = OpKind::attention_gemm;
  static constexpr const char* kSummary = "y = a b or a b^T for every batch and head";
  using Problem = BatchedMatmulProblem;
  using Forward = BatchedMatmulForward;
  using Backward = BatchedMatmulBackward;
  static std::span<const Variant<BatchedMatmulOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {2, 4, 2, 128, 128, 64, DType::f32, true, true, true, false}; }
  static Cost cost(const BatchedMatmulProblem& p, Pass pass);
};

struct BatchedMatmulOptions {
  int64_t heads = 1;         // of a
  int64_t b_heads = 1;       // a divisor of `heads`
  bool transpose_b = false;  // b is stored [N, K]
  bool y_in_columns = true;  // y is [B, M, H*N]; else [B, H, M, N]
  std::string_view variant = {};
};

// a [B, H, M, K] or [B, M, H*K], b likewise with its own heads; rows may be strided. Saves both.
Tensor batched_matmul(RankContext& ctx, const Tensor& a, const Tensor& b,
                      const BatchedMatmulOptions& options);

// One matrix of a stack: where it begins, and how far apart its rows are, in elements.
struct MatrixAt {
  int64_t offset, row_stride;
};

// Matrix (batch, head) of a tensor whose matrices have `cols` columns.
inline MatrixAt matrix_at(const Tensor& t, bool in_columns, int64_t cols, int64_t batch, int64_t head) {
  return in_columns ? MatrixAt{batch * t.stride(0) + head * cols, t.stride(1)}
                    : MatrixAt{batch * t.stride(0) + head * t.stride(1), t.stride(2)};
}

void batched_matmul_cpu_naive_forward(RankContext& ctx, const BatchedMatmulForward& f);
void batched_matmul_cpu_naive_backward(RankContext& ctx, const BatchedMatmulBackward& b);
std::size_t batched_matmul_cpu_packed_workspace(const BatchedMatmulProblem& p, Pass pass);
void batched_matmul_cpu_packed_forward(RankContext& ctx, const BatchedMatmulForward& f);
void batched_matmul_cpu_packed_backward(RankContext& ctx, const BatchedMatmulBackward& b);
void batched_matmul_cuda_lt_forward(RankContext& ctx, const BatchedMatmulForward& f);
void batched_matmul_cuda_lt_backward(RankContext& ctx, const BatchedMatmulBackward& b);

}  // namespace kiln
