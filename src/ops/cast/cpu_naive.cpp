#include "ops/cast/cast.h"
#include "ops/cpu_rows.h"

namespace kiln {

void cast_cpu_naive(RankContext& ctx, const CastCopy& c) {
  with_float(c.p.from, [&](auto from) {
    with_float(c.p.to, [&](auto to) {
      const auto x = rows_of<decltype(from)>(c.x);
      const auto y = rows_of<decltype(to)>(c.y.tensor);
      ctx.pool().parallel_for(c.p.rows, row_grain(c.p.cols), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          for (int64_t i = 0; i < c.p.cols; ++i) put(y[r][i], widen(x[r][i]), c.y.accumulate);
        }
      });
    });
  });
}

}  // namespace kiln
