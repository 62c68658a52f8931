// lt: each matrix by cuBLASLt, a loop over batches and heads on one stream. Layouts and transposes are row
// strides, nothing is copied; a gradient shared by several heads is summed over them in fp32 (fp64 for fp64)
// and rounded once. Floor: 2 B H M N K operations a product on the tensor cores. What keeps small heads from
// it is a launch per matrix.
#include "device/cuda/lt_matmul.h"
#include "ops/batched_matmul/batched_matmul.h"
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/rows.cuh"

namespace kiln {
namespace {

LtOperand operand(const Tensor& t, bool in_columns, int64_t cols, int64_t batch, int64_t head,
                  bool transposed = false) {
  const MatrixAt at = matrix_at(t, in_columns, cols, batch, head);
  return {t.raw() + at.offset * static_cast<int64_t>(size_of(t.dtype())), at.row_stride, transposed};
}

void* place(const LtOperand& o) { return const_cast<void*>(o.data); }

void run(RankContext& ctx, const LtMatmul& p) {
  const Tensor& workspace = ctx.gemm_workspace();
  cuda_backend(ctx).matmuls().run(p, workspace.raw(), workspace.bytes().value, ctx.compute());
}

// out[r, c] = sums[r, c], or adds it; one block a row.
template <class T>
__global__ void write_sums_kernel(const Accum<T>* sums, int64_t cols, T* out, int64_t row_stride,
                                  bool accumulate) {
  const int64_t r = blockIdx.x;
  for (int64_t c = first_column(); c < cols; c += column_step())
    put_grad(out[r * row_stride + c], sums[r * cols + c], accumulate);
}

void grad_b(RankContext& ctx, const BatchedMatmulBackward& g, int64_t batch, int64_t hb) {
  const BatchedMatmulProblem& p = g.p;
  const bool apart = p.group() > 1;
  const MatrixAt at = matrix_at(g.db.tensor, p.b_in_columns, p.b_cols(), batch, hb);
  for (int64_t i = 0; i < p.group(); ++i) {
    LtOperand a = operand(g.a, p.a_in_columns, p.K, batch, hb * p.group() + i);
    LtOperand dy = operand(g.dy, p.y_in_columns, p.N, batch, hb * p.group() + i);
    (p.transpose_b ? dy : a).transposed = true;
    run(ctx,
        {.m = p.b_rows(),
         .n = p.b_cols(),
         .k = p.M,
         .in = p.dtype,
         .a = p.transpose_b ? dy : a,
         .b = p.transpose_b ? a : dy,
         .out = apart ? stat_dtype(p.dtype) : p.dtype,
         .d = apart ? g.workspace.raw() : place(operand(g.db.tensor, p.b_in_columns, p.b_cols(), batch, hb)),
         .d_row_stride = apart ? p.b_cols() : at.row_stride,
         .accumulate = i > 0 || (!apart && g.db.accumulate)});
  }
  if (!apart) return;
  with_float(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(write_sums_kernel<T>, matrix_grid(p.b_rows(), p.b_cols()), kThreads, 0, cuda_stream(ctx),
           reinterpret_cast<const Accum<T>*>(g.workspace.raw()), p.b_cols(),
           g.db.tensor.data<T>() + at.offset, at.row_stride, g.db.accumulate);
  });
}

}  // namespace

void batched_matmul_cuda_lt_forward(RankContext& ctx, const BatchedMatmulForward& f) {
  const BatchedMatmulProblem& p = f.p;
  for (int64_t i = 0; i < p.B * p.H; ++i) {
    const int64_t batch = i / p.H, h = i % p.H;
    const LtOperand y = operand(f.y, p.y_in_columns, p.N, batch, h);
    run(ctx, {.m = p.M,
              .n = p.N,
              .k = p.K,
              .in = p.dtype,
              .a = operand(f.a, p.a_in_columns, p.K, batch, h),
              .b = operand(f.b, p.b_in_columns, p.b_cols(), batch, h / p.group(), p.transpose_b),
              .out = p.dtype,
              .d = place(y),
              .d_row_stride = y.row_stride});
  }
}

void batched_matmul_cuda_lt_backward(RankContext& ctx, const BatchedMatmulBackward& g) {
  const BatchedMatmulProblem& p = g.p;
  for (int64_t i = 0; g.da.wanted() && i < p.B * p.H; ++i) {
    const int64_t batch = i / p.H, h = i % p.H;
    const LtOperand da = operand(g.da.tensor, p.a_in_columns, p.K, batch, h);
    run(ctx, {.m = p.M,
              .n = p.K,
              .k = p.N,
              .in = p.dtype,
              .a = operand(g.dy, p.y_in_columns, p.N, batch, h),
              .b = operand(g.b, p.b_in_columns, p.b_cols(), batch, h / p.group(), !p.transpose_b),
              .out = p.dtype,
              .d = place(da),
              .d_row_stride = da.row_stride,
              .accumulate = g.da.accumulate});
  }
  for (int64_t i = 0; g.db.wanted() && i < p.B * p.Hb; ++i) grad_b(ctx, g, i / p.Hb, i % p.Hb);
}

}  // namespace kiln
