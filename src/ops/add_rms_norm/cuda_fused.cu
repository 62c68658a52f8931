// fused: both inputs read once, the sum and its norm written once; backward is rms_norm's, which adds to the
// sum's gradient in place.
// Memory bound: four matrices forward, four backward.
#include "ops/add_rms_norm/add_rms_norm.h"
#include "ops/rms_norm/cuda_fused_rows.cuh"

namespace kiln {

void add_rms_norm_cuda_fused_forward(RankContext& ctx, const AddRmsNormForward& f) {
  using namespace rms_norm_rows;
  with_narrow_gpu_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const ForwardRows<T> rows{row_view<T>(f.x), row_view<T>(f.residual), row_view<T>(f.sum),
                              row_view<T>(f.y), f.weight.data<T>(),      f.rstd.data<float>()};
    run_forward<T, true>(ctx, f.p, rows);
  });
}

}  // namespace kiln
