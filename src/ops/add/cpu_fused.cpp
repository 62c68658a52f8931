// fused: vectors of fp32. Memory bound: two reads and a write, 3 * rows * cols * element size bytes.
#include "ops/cpu_fused.h"
#include "ops/add/add.h"

#define KILN_SIMD_FILE "ops/add/cpu_fused_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln {

void add_cpu_fused_forward(RankContext& ctx, const AddForward& f) {
  with_narrow_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto a = rows_or_null<const T>(f.a), b = rows_of<const T>(f.b);
    const auto y = rows_of<T>(f.y);
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, add_row<T>);
    const bool dense = (!a.base || f.a.contiguous()) && f.b.contiguous() && f.y.contiguous();
    for_tiles(ctx, f.p.rows, f.p.cols, dense, [&](int64_t row, int64_t rows, int64_t c, int64_t cols) {
      for (int64_t r = row; r < row + rows; ++r) {
        if (a.base != nullptr) {
          kernel(a[r] + c, b[r] + c, y[r] + c, cols);
        } else {
          std::memcpy(y[r] + c, b[r] + c, static_cast<std::size_t>(cols) * sizeof(T));
        }
      }
    });
  });
}

}  // namespace kiln
