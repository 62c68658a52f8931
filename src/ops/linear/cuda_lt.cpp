// The three matmuls by cuBLASLt. The roofline is the larger of 2 * rows * in * out operations on the tensor
// cores and one pass over the three matrices; strided views go in as they are, through their row stride.
#include "device/cuda/lt_matmul.h"
#include "ops/cuda_device/rank.h"
#include "ops/linear/linear.h"

namespace kiln {
namespace {

LtOperand plain(const Tensor& t) { return {t.raw(), t.row_stride(), false}; }
LtOperand transposed(const Tensor& t) { return {t.raw(), t.row_stride(), true}; }

void run(RankContext& ctx, LtMatmul p, bool tf32) {
  p.tf32 = tf32;
  const Tensor& workspace = ctx.gemm_workspace();
  cuda_backend(ctx).matmuls().run(p, workspace.raw(), workspace.bytes().value, ctx.compute());
}

void forward(RankContext& ctx, const LinearForward& f, bool tf32) {
  const LinearProblem& p = f.p;
  // y's own rows: x has none where `in` is 0, and y must still be written.
  run(ctx,
      {.m = f.y.shape().rows(),
       .n = p.out,
       .k = p.in,
       .in = p.dtype,
       .a = plain(f.x),
       .b = transposed(f.weight),
       .out = p.dtype,
       .d = f.y.raw(),
       .d_row_stride = f.y.row_stride()},
      tf32);
}

void backward(RankContext& ctx, const LinearBackward& b, bool tf32) {
  const LinearProblem& p = b.p;
  if (b.dx.wanted()) {
    run(ctx,
        {.m = p.rows,
         .n = p.in,
         .k = p.out,
         .in = p.dtype,
         .a = plain(b.dy),
         .b = plain(b.weight),
         .out = p.dtype,
         .d = b.dx.tensor.raw(),
         .d_row_stride = b.dx.tensor.row_stride(),
         .accumulate = b.dx.accumulate},
        tf32);
  }
  if (b.dweight.wanted()) {
    run(ctx,
        {.m = p.out,
         .n = p.in,
         .k = p.rows,
         .in = p.dtype,
         .a = transposed(b.dy),
         .b = plain(b.x),
         .out = b.dweight.tensor.dtype(),
         .d = b.dweight.tensor.raw(),
         .d_row_stride = b.dweight.tensor.row_stride(),
         .accumulate = b.dweight.accumulate},
        tf32);
  }
}

}  // namespace

void linear_cuda_lt_forward(RankContext& ctx, const LinearForward& f) { forward(ctx, f, false); }
void linear_cuda_lt_backward(RankContext& ctx, const LinearBackward& b) { backward(ctx, b, false); }
void linear_cuda_lt_tf32_forward(RankContext& ctx, const LinearForward& f) { forward(ctx, f, true); }
void linear_cuda_lt_tf32_backward(RankContext& ctx, const LinearBackward& b) { backward(ctx, b, true); }

}  // namespace kiln
