// fused: vectors of fp32, each row brought into the first cache once. Forward reads x and writes y; backward
// reads x and dy once for all of dx and dw, where naive goes over them twice. The weight's gradient is summed
// in fixed chunks of rows (ops/cpu_fused.h).
// Memory bound: 2 * rows * cols * element size bytes forward, 3 times backward.
#include "ops/cpu_fused.h"
#include "ops/rms_norm/rms_norm.h"

namespace kiln {
namespace {

template <class T>
struct RmsNormRows {
  Rows<const T> x;
  const T* weight;
  Rows<T> y;
  float* rstd;
  int64_t cols;
  float eps;
};

template <class T>
struct RmsNormGradRows {
  Rows<const T> dy, x;
  const T* weight;
  const float* rstd;
  Rows<T> dx;  // null: not wanted
  bool add_to_dx;
  int64_t cols;
};

}  // namespace
}  // namespace kiln

#define KILN_SIMD_FILE "ops/rms_norm/cpu_fused_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln {

void rms_norm_cpu_fused_forward(RankContext& ctx, const RmsNormForward& f) {
  with_narrow_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const RmsNormRows<T> rows{rows_of<const T>(f.x), f.weight.data<T>(), rows_of<T>(f.y),
                              f.rstd.data<float>(),  f.p.cols,           f.p.eps};
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, rms_norm_forward_rows<T>);
    ctx.pool().parallel_for(f.p.rows, row_grain(f.p.cols),
                            [&](int64_t begin, int64_t end) { kernel(rows, begin, end); });
  });
}

void rms_norm_cpu_fused_backward(RankContext& ctx, const RmsNormBackward& b) {
  with_narrow_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const RmsNormGradRows<T> rows{rows_of<const T>(b.dy),
                                  rows_of<const T>(b.x),
                                  b.weight.data<T>(),
                                  b.rstd.data<float>(),
                                  rows_or_null<T>(b.dx.tensor),
                                  b.dx.accumulate,
                                  b.p.cols};
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, rms_norm_backward_rows<T>);
    const PartialSums sums = for_row_chunks(
        ctx, b.p.rows, b.p.cols, b.p.cols, b.workspace, b.dweight.wanted(),
        [&](float* partial, int64_t begin, int64_t end) { kernel(rows, partial, begin, end); });
    if (b.dweight.wanted()) sum_partials<T>(ctx, sums.data, sums.chunks, b.p.cols, b.dweight);
  });
}

}  // namespace kiln
