// fused: one pass reads both inputs and writes both outputs; the sum is normed while it is in the first
// cache. Memory bound: 4 * rows * cols * element size bytes, where add and rms_norm one after the other
// move 5. Backward is rms_norm's, on top of the sum's gradient.
#include "ops/cpu_fused.h"
#include "ops/add_rms_norm/add_rms_norm.h"

namespace kiln {
namespace {

template <class T>
struct AddRmsNormRows {
  Rows<const T> x, residual;
  const T* weight;
  Rows<T> sum, y;
  float* rstd;
  int64_t cols;
  float eps;
};

}  // namespace
}  // namespace kiln

#define KILN_SIMD_FILE "ops/add_rms_norm/cpu_fused_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln {

void add_rms_norm_cpu_fused_forward(RankContext& ctx, const AddRmsNormForward& f) {
  with_narrow_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const AddRmsNormRows<T> rows{
        rows_of<const T>(f.x), rows_of<const T>(f.residual), f.weight.data<T>(), rows_of<T>(f.sum),
        rows_of<T>(f.y),       f.rstd.data<float>(),         f.p.cols,           f.p.eps};
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, add_rms_norm_rows<T>);
    ctx.pool().parallel_for(f.p.rows, row_grain(f.p.cols),
                            [&](int64_t begin, int64_t end) { kernel(rows, begin, end); });
  });
}

}  // namespace kiln
