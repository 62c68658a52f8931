// fused: each row read once, kept in registers; see cuda_fused_rows.cuh.
#include "ops/softmax/cuda_fused_rows.cuh"
#include "ops/softmax/softmax.h"

namespace kiln {

using namespace softmax_rows;

void softmax_cuda_fused_forward(RankContext& ctx, const SoftmaxForward& f) {
  with_narrow_gpu_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    run_forward<T>(ctx, AllColumns{f.p.cols},
                   ForwardRows<T>{row_view<T>(f.x), row_view<T>(f.y), f.p.rows, f.p.cols, 1.0f});
  });
}

void softmax_cuda_fused_backward(RankContext& ctx, const SoftmaxBackward& b) {
  with_narrow_gpu_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    run_backward<T>(ctx, AllColumns{b.p.cols},
                    BackwardRows<T>{row_view<T>(b.dy), row_view<T>(b.y), row_view<T>(b.dx.tensor), b.p.rows,
                                    b.p.cols, 1.0f, b.dx.accumulate});
  });
}

}  // namespace kiln
