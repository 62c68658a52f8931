#include <cmath>

#include "ops/cpu_rows.h"
#include "ops/masked_softmax/masked_softmax.h"

namespace kiln {

void masked_softmax_cpu_naive_forward(RankContext& ctx, const MaskedSoftmaxForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Accum<T>;
    const auto x = rows_of<T>(f.x), y = rows_of<T>(f.y);
    const A scale = static_cast<A>(f.p.scale);
    ctx.pool().parallel_for(f.p.rows, row_grain(f.p.Tk), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t n = f.p.visible(r);
        A top = -INFINITY, sum = 0;
        for (int64_t c = 0; c < n; ++c) top = std::max(top, scale * widen(x[r][c]));  // a sum finds NaNs
        for (int64_t c = 0; c < n; ++c) sum += std::exp(scale * widen(x[r][c]) - top);
        for (int64_t c = 0; c < n; ++c)
          y[r][c] = static_cast<T>(std::exp(scale * widen(x[r][c]) - top) / sum);
        std::fill(y[r] + n, y[r] + f.p.Tk, T(A(0)));
      }
    });
  });
}

void masked_softmax_cpu_naive_backward(RankContext& ctx, const MaskedSoftmaxBackward& b) {
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Accum<T>;
    const auto y = rows_of<T>(b.y), dy = rows_of<T>(b.dy), dx = rows_of<T>(b.dx.tensor);
    const A scale = static_cast<A>(b.p.scale);
    ctx.pool().parallel_for(b.p.rows, row_grain(b.p.Tk), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t n = b.p.visible(r);
        A dot = 0;
        for (int64_t c = 0; c < n; ++c) dot += widen(dy[r][c]) * widen(y[r][c]);
        for (int64_t c = 0; c < n; ++c)
          put(dx[r][c], scale * widen(y[r][c]) * (widen(dy[r][c]) - dot), b.dx.accumulate);
        for (int64_t c = n; c < b.p.Tk; ++c) put(dx[r][c], A(0), b.dx.accumulate);
      }
    });
  });
}

}  // namespace kiln
