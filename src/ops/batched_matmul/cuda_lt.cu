// lt: cuBLASLt, all heads of a sequence or all sequences of a head in one call, whichever are more. Layouts
// and transposes are strides, nothing is copied; a gradient shared by several heads is summed over them in
// fp32 (fp64 for fp64), matrix by matrix, and rounded once. Roofline: 2 B H M N K operations a matmul on the
// tensor cores.
#include "device/cuda/lt_matmul.h"
#include "ops/batched_matmul/batched_matmul.h"
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/rows.cuh"

namespace kiln {
namespace {

// One call: the matrices (batch, head) of b, or those of a and y that head `share` of its group has, and the
// `count` of them that follow, by heads or by sequences.
struct Stack {
  int64_t batch, head, share, count;
  bool by_heads;
};

template <class F>
void for_each_stack(const BatchedMatmulProblem& p, F f) {
  const bool by_heads = p.Hb >= p.B;
  for (int64_t share = 0; share < p.group(); ++share) {
    for (int64_t i = 0; i < (by_heads ? p.B : p.Hb); ++i)
      f(Stack{by_heads ? i : 0, by_heads ? 0 : i, share, by_heads ? p.Hb : p.B, by_heads});
  }
}

// `group`: heads of t for each of b.
LtOperand operand(const Tensor& t, bool in_columns, int64_t cols, const Stack& s, int64_t group,
                  bool transposed = false) {
  const auto at = [&](int64_t next) {
    const int64_t head = s.head + (s.by_heads ? next : 0);
    return matrix_at(t, in_columns, cols, s.batch + (s.by_heads ? 0 : next),
                     group == 1 ? head : head * group + s.share);
  };
  return {t.raw() + at(0).offset * static_cast<int64_t>(size_of(t.dtype())), at(0).row_stride, transposed,
          s.count == 1 ? 0 : at(1).offset - at(0).offset};
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

LtMatmul grad_b_product(const BatchedMatmulBackward& g, const Stack& s) {
  const BatchedMatmulProblem& p = g.p;
  LtOperand a = operand(g.a, p.a_in_columns, p.K, s, p.group());
  LtOperand dy = operand(g.dy, p.y_in_columns, p.N, s, p.group());
  const LtOperand db = operand(g.db.tensor, p.b_in_columns, p.b_cols(), s, 1);
  (p.transpose_b ? dy : a).transposed = true;
  return {.m = p.b_rows(),
          .n = p.b_cols(),
          .k = p.M,
          .in = p.dtype,
          .a = p.transpose_b ? dy : a,
          .b = p.transpose_b ? a : dy,
          .out = p.dtype,
          .d = place(db),
          .d_row_stride = db.row_stride,
          .accumulate = g.db.accumulate,
          .batch = s.count,
          .d_batch_stride = db.batch_stride};
}

// Of one head of b, which several of a share.
void grad_shared_b(RankContext& ctx, const BatchedMatmulBackward& g, int64_t batch, int64_t head) {
  const BatchedMatmulProblem& p = g.p;
  const MatrixAt at = matrix_at(g.db.tensor, p.b_in_columns, p.b_cols(), batch, head);
  for (int64_t share = 0; share < p.group(); ++share) {
    LtMatmul product = grad_b_product(g, {batch, head, share, 1, true});
    product.out = stat_dtype(p.dtype);
    product.d = g.workspace.raw();
    product.d_row_stride = p.b_cols();
    product.accumulate = share > 0;
    run(ctx, product);
  }
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
  for_each_stack(p, [&](const Stack& s) {
    const LtOperand y = operand(f.y, p.y_in_columns, p.N, s, p.group());
    run(ctx, {.m = p.M,
              .n = p.N,
              .k = p.K,
              .in = p.dtype,
              .a = operand(f.a, p.a_in_columns, p.K, s, p.group()),
              .b = operand(f.b, p.b_in_columns, p.b_cols(), s, 1, p.transpose_b),
              .out = p.dtype,
              .d = place(y),
              .d_row_stride = y.row_stride,
              .batch = s.count,
              .d_batch_stride = y.batch_stride});
  });
}

void batched_matmul_cuda_lt_backward(RankContext& ctx, const BatchedMatmulBackward& g) {
  const BatchedMatmulProblem& p = g.p;
  if (g.da.wanted()) {
    for_each_stack(p, [&](const Stack& s) {
      const LtOperand da = operand(g.da.tensor, p.a_in_columns, p.K, s, p.group());
      run(ctx, {.m = p.M,
                .n = p.K,
                .k = p.N,
                .in = p.dtype,
                .a = operand(g.dy, p.y_in_columns, p.N, s, p.group()),
                .b = operand(g.b, p.b_in_columns, p.b_cols(), s, 1, !p.transpose_b),
                .out = p.dtype,
                .d = place(da),
                .d_row_stride = da.row_stride,
                .accumulate = g.da.accumulate,
                .batch = s.count,
                .d_batch_stride = da.batch_stride});
    });
  }
  if (!g.db.wanted()) return;
  if (p.group() == 1) return for_each_stack(p, [&](const Stack& s) { run(ctx, grad_b_product(g, s)); });
  for (int64_t i = 0; i < p.B * p.Hb; ++i) grad_shared_b(ctx, g, i / p.Hb, i % p.Hb);
}

}  // namespace kiln
