// fused: each row read once, kept in registers; see cuda_fused_rows.cuh.
#include "ops/rms_norm/cuda_fused_rows.cuh"

namespace kiln {

using namespace rms_norm_rows;

void rms_norm_cuda_fused_forward(RankContext& ctx, const RmsNormForward& f) {
  with_narrow_gpu_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const ForwardRows<T> rows{row_view<T>(f.x),    {}, {}, row_view<T>(f.y), f.weight.data<T>(),
                              f.rstd.data<float>()};
    run_forward<T, false>(ctx, f.p, rows);
  });
}

void rms_norm_cuda_fused_backward(RankContext& ctx, const RmsNormBackward& b) {
  const Stream stream = cuda_stream(ctx);
  const RowGroups g = row_groups(b.p, Pass::backward);
  with_narrow_gpu_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    float* partial = b.dweight.wanted() ? reinterpret_cast<float*>(b.workspace.raw()) : nullptr;
    const BackwardRows<T> rows{row_view<T>(b.dy),  row_view<T>(b.x),     row_view<T>(b.dx.tensor),
                               b.weight.data<T>(), b.rstd.data<float>(), partial,
                               b.dx.accumulate};
    with_packs(g.packs, [&](auto packs) {
      launch(backward_kernel<T, decltype(packs)::value>, Grid(g.blocks), block_of(g),
             partial_shared_bytes(g, b.p.cols), stream, b.p, rows);
    });
    if (b.dweight.wanted()) sum_partials<T>(partial, g.blocks, b.p.cols, b.dweight, stream);
  });
}

}  // namespace kiln
