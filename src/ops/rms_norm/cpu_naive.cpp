#include <cmath>

#include "ops/cpu_rows.h"
#include "ops/rms_norm/rms_norm.h"

namespace kiln {
namespace {

template <class T>
void forward(RankContext& ctx, const RmsNormForward& f) {
  using A = Accum<T>;
  const auto x = rows_of<T>(f.x), y = rows_of<T>(f.y);
  const T* w = f.weight.data<T>();
  A* rstd = f.rstd.data<A>();
  ctx.pool().parallel_for(f.p.rows, row_grain(f.p.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      A squares = 0;
      for (int64_t c = 0; c < f.p.cols; ++c) squares += widen(x[r][c]) * widen(x[r][c]);
      rstd[r] = 1 / std::sqrt(squares / static_cast<A>(f.p.cols) + static_cast<A>(f.p.eps));
      for (int64_t c = 0; c < f.p.cols; ++c) y[r][c] = static_cast<T>(widen(x[r][c]) * rstd[r] * widen(w[c]));
    }
  });
}

// With n = x * rstd: dx = rstd * (dy * w - n * mean(dy * w * n)).
template <class T>
void grad_x(RankContext& ctx, const RmsNormBackward& b) {
  using A = Accum<T>;
  const auto x = rows_of<T>(b.x), dy = rows_of<T>(b.dy), dx = rows_of<T>(b.dx.tensor);
  const T* w = b.weight.data<T>();
  const A* rstd = b.rstd.data<A>();
  ctx.pool().parallel_for(b.p.rows, row_grain(b.p.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      A dot = 0;
      for (int64_t c = 0; c < b.p.cols; ++c) dot += widen(dy[r][c]) * widen(w[c]) * widen(x[r][c]) * rstd[r];
      const A mean = dot / static_cast<A>(b.p.cols);
      for (int64_t c = 0; c < b.p.cols; ++c) {
        const A n = widen(x[r][c]) * rstd[r];
        put(dx[r][c], rstd[r] * (widen(dy[r][c]) * widen(w[c]) - n * mean), b.dx.accumulate);
      }
    }
  });
}

// dw[c] = sum over rows of dy * n, rows in order: columns are split among threads, rows are not.
template <class T, class G>
void grad_weight(RankContext& ctx, const RmsNormBackward& b) {
  using A = Accum<T>;
  const auto x = rows_of<T>(b.x), dy = rows_of<T>(b.dy);
  const A* rstd = b.rstd.data<A>();
  G* dw = b.dweight.tensor.data<G>();
  ctx.pool().parallel_for(b.p.cols, row_grain(b.p.rows), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      A sum = 0;
      for (int64_t r = 0; r < b.p.rows; ++r) sum += widen(dy[r][c]) * widen(x[r][c]) * rstd[r];
      put(dw[c], sum, b.dweight.accumulate);
    }
  });
}

}  // namespace

void rms_norm_cpu_naive_forward(RankContext& ctx, const RmsNormForward& f) {
  with_float(f.p.dtype, [&](auto zero) { forward<decltype(zero)>(ctx, f); });
}

void rms_norm_cpu_naive_backward(RankContext& ctx, const RmsNormBackward& b) {
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (b.dx.wanted()) grad_x<T>(ctx, b);
    if (b.dweight.wanted())
      with_grad_type<T>(b.dweight, [&](auto g) { grad_weight<T, decltype(g)>(ctx, b); });
  });
}

}  // namespace kiln
