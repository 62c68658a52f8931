// fused: vectors of fp32, each row brought into the first cache once, in both directions. The gradients of
// weight and bias are summed in fixed chunks of rows (ops/cpu_fused.h).
// Memory bound: 2 * rows * cols * element size bytes forward, 3 times backward.
#include "ops/cpu_fused.h"
#include "ops/layer_norm/layer_norm.h"

namespace kiln {
namespace {

template <class T>
struct LayerNormRows {
  Rows<const T> x;
  const T *weight, *bias;
  Rows<T> y;
  float *mean, *rstd;
  int64_t cols;
  float eps;
};

template <class T>
struct LayerNormGradRows {
  Rows<const T> dy, x;
  const T* weight;
  const float *mean, *rstd;
  Rows<T> dx;  // null: not wanted
  bool add_to_dx;
  int64_t cols;
};

}  // namespace
}  // namespace kiln

#define KILN_SIMD_FILE "ops/layer_norm/cpu_fused_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln {

void layer_norm_cpu_fused_forward(RankContext& ctx, const LayerNormForward& f) {
  with_narrow_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const LayerNormRows<T> rows{
        rows_of<const T>(f.x), f.weight.data<T>(),   f.bias.data<T>(), rows_of<T>(f.y),
        f.mean.data<float>(),  f.rstd.data<float>(), f.p.cols,         f.p.eps};
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, layer_norm_forward_rows<T>);
    ctx.pool().parallel_for(f.p.rows, row_grain(f.p.cols),
                            [&](int64_t begin, int64_t end) { kernel(rows, begin, end); });
  });
}

void layer_norm_cpu_fused_backward(RankContext& ctx, const LayerNormBackward& b) {
  with_narrow_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const LayerNormGradRows<T> rows{
        rows_of<const T>(b.dy), rows_of<const T>(b.x),        b.weight.data<T>(), b.mean.data<float>(),
        b.rstd.data<float>(),   rows_or_null<T>(b.dx.tensor), b.dx.accumulate,    b.p.cols};
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, layer_norm_backward_rows<T>);
    const PartialSums sums = for_row_chunks(
        ctx, b.p.rows, b.p.cols, 2 * b.p.cols, b.workspace, b.dweight.wanted() || b.dbias.wanted(),
        [&](float* partial, int64_t begin, int64_t end) { kernel(rows, partial, begin, end); });
    if (b.dweight.wanted()) sum_partials<T>(ctx, sums.data, sums.chunks, 2 * b.p.cols, b.dweight);
    if (b.dbias.wanted())
      sum_partials<T>(ctx, sums.data ? sums.data + b.p.cols : nullptr, sums.chunks, 2 * b.p.cols, b.dbias);
  });
}

}  // namespace kiln
