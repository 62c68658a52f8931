// fused: vectors of fp32. Memory bound: one read and one write.
#include "ops/cpu_fused.h"
#include "ops/cast/cast.h"

#define KILN_SIMD_FILE "ops/cast/cpu_fused_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln {

void cast_cpu_fused(RankContext& ctx, const CastCopy& c) {
  with_narrow_float(c.p.from, [&](auto from) {
    with_narrow_float(c.p.to, [&](auto to) {
      using S = decltype(from);
      using T = decltype(to);
      const auto x = rows_of<const S>(c.x);
      const auto y = rows_of<T>(c.y.tensor);
      const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, cast_row<S, T>);
      const bool dense = c.x.contiguous() && c.y.tensor.contiguous();
      for_tiles(ctx, c.p.rows, c.p.cols, dense, [&](int64_t row, int64_t rows, int64_t at, int64_t cols) {
        for (int64_t r = row; r < row + rows; ++r) kernel(x[r] + at, y[r] + at, cols, c.y.accumulate);
      });
    });
  });
}

}  // namespace kiln
