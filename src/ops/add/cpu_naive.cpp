#include "ops/add/add.h"
#include "ops/cpu_rows.h"

namespace kiln {

void add_cpu_naive_forward(RankContext& ctx, const AddForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto b = rows_of<T>(f.b), y = rows_of<T>(f.y);
    const auto a = f.a.defined() ? rows_of<T>(f.a) : Rows<T>{};
    ctx.pool().parallel_for(f.p.rows, row_grain(f.p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t c = 0; c < f.p.cols; ++c) {
          y[r][c] = f.a.defined() ? static_cast<T>(widen(a[r][c]) + widen(b[r][c])) : b[r][c];
        }
      }
    });
  });
}

}  // namespace kiln
