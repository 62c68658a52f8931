#include <cmath>

#include "ops/cpu_rows.h"
#include "ops/softmax/softmax.h"

namespace kiln {

void softmax_cpu_naive_forward(RankContext& ctx, const SoftmaxForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Accum<T>;
    const auto x = rows_of<T>(f.x), y = rows_of<T>(f.y);
    ctx.pool().parallel_for(f.p.rows, row_grain(f.p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        A top = widen(x[r][0]), sum = 0;
        for (int64_t c = 1; c < f.p.cols; ++c) top = std::max(top, widen(x[r][c]));
        for (int64_t c = 0; c < f.p.cols; ++c) sum += std::exp(widen(x[r][c]) - top);
        for (int64_t c = 0; c < f.p.cols; ++c) y[r][c] = static_cast<T>(std::exp(widen(x[r][c]) - top) / sum);
      }
    });
  });
}

// dx = y * (dy - sum(dy * y))
void softmax_cpu_naive_backward(RankContext& ctx, const SoftmaxBackward& b) {
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Accum<T>;
    const auto y = rows_of<T>(b.y), dy = rows_of<T>(b.dy), dx = rows_of<T>(b.dx.tensor);
    ctx.pool().parallel_for(b.p.rows, row_grain(b.p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        A dot = 0;
        for (int64_t c = 0; c < b.p.cols; ++c) dot += widen(dy[r][c]) * widen(y[r][c]);
        for (int64_t c = 0; c < b.p.cols; ++c)
          put(dx[r][c], widen(y[r][c]) * (widen(dy[r][c]) - dot), b.dx.accumulate);
      }
    });
  });
}

}  // namespace kiln
