#include <cmath>

#include "ops/add_rms_norm/add_rms_norm.h"
#include "ops/cpu_rows.h"

namespace kiln {

void add_rms_norm_cpu_naive_forward(RankContext& ctx, const AddRmsNormForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Accum<T>;
    const auto x = rows_of<T>(f.x), residual = rows_of<T>(f.residual), sum = rows_of<T>(f.sum),
               y = rows_of<T>(f.y);
    const T* w = f.weight.data<T>();
    A* rstd = f.rstd.data<A>();
    ctx.pool().parallel_for(f.p.rows, row_grain(f.p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        A squares = 0;
        for (int64_t c = 0; c < f.p.cols; ++c) {
          sum[r][c] = static_cast<T>(widen(x[r][c]) + widen(residual[r][c]));
          squares += widen(sum[r][c]) * widen(sum[r][c]);
        }
        rstd[r] = 1 / std::sqrt(squares / static_cast<A>(f.p.cols) + static_cast<A>(f.p.eps));
        for (int64_t c = 0; c < f.p.cols; ++c)
          y[r][c] = static_cast<T>(widen(sum[r][c]) * rstd[r] * widen(w[c]));
      }
    });
  });
}

}  // namespace kiln
