// fused: vectors of fp32 with our own exp; every input is read once and both gradients come from one pass.
// Memory bound: 3 * rows * cols * element size bytes forward, 5 times backward.
#include "ops/cpu_fused.h"
#include "ops/swiglu/swiglu.h"

namespace kiln {
namespace {

template <class T>
struct SwigluGradRow {
  const T *dy, *gate, *up;
  T *dgate, *dup;
  bool add_to_dgate, add_to_dup;
};

}  // namespace
}  // namespace kiln

#define KILN_SIMD_FILE "ops/swiglu/cpu_fused_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln {

void swiglu_cpu_fused_forward(RankContext& ctx, const SwigluForward& f) {
  with_narrow_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto gate = rows_of<const T>(f.gate), up = rows_of<const T>(f.up);
    const auto y = rows_of<T>(f.y);
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, swiglu_forward_row<T>);
    const bool dense = f.gate.contiguous() && f.up.contiguous() && f.y.contiguous();
    for_tiles(ctx, f.p.rows, f.p.cols, dense, [&](int64_t row, int64_t rows, int64_t c, int64_t cols) {
      for (int64_t r = row; r < row + rows; ++r) kernel(gate[r] + c, up[r] + c, y[r] + c, cols);
    });
  });
}

void swiglu_cpu_fused_backward(RankContext& ctx, const SwigluBackward& b) {
  with_narrow_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto dy = rows_of<const T>(b.dy), gate = rows_of<const T>(b.gate), up = rows_of<const T>(b.up);
    const auto dgate = rows_or_null<T>(b.dgate.tensor), dup = rows_or_null<T>(b.dup.tensor);
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, swiglu_backward_row<T>);
    ctx.pool().parallel_for(b.p.rows, row_grain(b.p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const SwigluGradRow<T> row{
            dy[r],           gate[r], up[r], dgate.row_or_null(r), dup.row_or_null(r), b.dgate.accumulate,
            b.dup.accumulate};
        kernel(row, b.p.cols);
      }
    });
  });
}

}  // namespace kiln
