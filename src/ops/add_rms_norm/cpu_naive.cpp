// By its definition: the sum, then rms_norm's own loops over it as it was stored.
#include "ops/add_rms_norm/add_rms_norm.h"
#include "ops/cpu_rows.h"

namespace kiln {

void add_rms_norm_cpu_naive_forward(RankContext& ctx, const AddRmsNormForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = rows_of<T>(f.x), residual = rows_of<T>(f.residual), sum = rows_of<T>(f.sum);
    ctx.pool().parallel_for(f.p.rows, row_grain(f.p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t c = 0; c < f.p.cols; ++c)
          sum[r][c] = static_cast<T>(widen(x[r][c]) + widen(residual[r][c]));
      }
    });
  });
  rms_norm_cpu_naive_forward(ctx, {f.p, f.sum, f.weight, f.y, f.rstd});
}

}  // namespace kiln
