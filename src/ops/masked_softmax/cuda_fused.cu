// fused: softmax's row kernels (softmax/cuda_fused_rows.cuh) with a mask: what a row does not see is not
// read.
#include "ops/masked_softmax/masked_softmax.h"
#include "ops/softmax/cuda_fused_rows.cuh"

namespace kiln {

using namespace softmax_rows;

void masked_softmax_cuda_fused_forward(RankContext& ctx, const MaskedSoftmaxForward& f) {
  with_narrow_gpu_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    run_forward<T>(ctx, f.p, ForwardRows<T>{row_view<T>(f.x), row_view<T>(f.y), f.p.rows, f.p.Tk, f.p.scale});
  });
}

void masked_softmax_cuda_fused_backward(RankContext& ctx, const MaskedSoftmaxBackward& b) {
  with_narrow_gpu_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    run_backward<T>(ctx, b.p,
                    BackwardRows<T>{row_view<T>(b.dy), row_view<T>(b.y), row_view<T>(b.dx.tensor), b.p.rows,
                                    b.p.Tk, b.p.scale, b.dx.accumulate});
  });
}

}  // namespace kiln
