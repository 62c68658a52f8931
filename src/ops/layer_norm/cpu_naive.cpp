#include <cmath>

#include "ops/cpu_rows.h"
#include "ops/layer_norm/layer_norm.h"

namespace kiln {
namespace {

template <class T>
void forward(RankContext& ctx, const LayerNormForward& f) {
  using A = Accum<T>;
  const auto x = rows_of<T>(f.x), y = rows_of<T>(f.y);
  const T *w = f.weight.data<T>(), *bias = f.bias.data<T>();
  A *mean = f.mean.data<A>(), *rstd = f.rstd.data<A>();
  const A cols = static_cast<A>(f.p.cols);
  ctx.pool().parallel_for(f.p.rows, row_grain(f.p.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      A sum = 0, squares = 0;
      for (int64_t c = 0; c < f.p.cols; ++c) sum += widen(x[r][c]);
      mean[r] = sum / cols;
      for (int64_t c = 0; c < f.p.cols; ++c) {
        const A d = widen(x[r][c]) - mean[r];
        squares += d * d;
      }
      rstd[r] = 1 / std::sqrt(squares / cols + static_cast<A>(f.p.eps));
      for (int64_t c = 0; c < f.p.cols; ++c)
        y[r][c] = static_cast<T>((widen(x[r][c]) - mean[r]) * rstd[r] * widen(w[c]) + widen(bias[c]));
    }
  });
}

// With n = (x - mean) * rstd and g = dy * w: dx = rstd * (g - mean(g) - n * mean(g * n)).
template <class T>
void grad_x(RankContext& ctx, const LayerNormBackward& b) {
  using A = Accum<T>;
  const auto x = rows_of<T>(b.x), dy = rows_of<T>(b.dy), dx = rows_of<T>(b.dx.tensor);
  const T* w = b.weight.data<T>();
  const A *mean = b.mean.data<A>(), *rstd = b.rstd.data<A>();
  const A cols = static_cast<A>(b.p.cols);
  ctx.pool().parallel_for(b.p.rows, row_grain(b.p.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      A sum = 0, dot = 0;
      for (int64_t c = 0; c < b.p.cols; ++c) {
        const A g = widen(dy[r][c]) * widen(w[c]);
        sum += g;
        dot += g * (widen(x[r][c]) - mean[r]) * rstd[r];
      }
      for (int64_t c = 0; c < b.p.cols; ++c) {
        const A g = widen(dy[r][c]) * widen(w[c]), n = (widen(x[r][c]) - mean[r]) * rstd[r];
        put(dx[r][c], rstd[r] * (g - sum / cols - n * (dot / cols)), b.dx.accumulate);
      }
    }
  });
}

// Sums over rows, in order: columns are split among threads, rows are not. value(r, c) is a row's summand.
template <class T, class F>
void grad_column(RankContext& ctx, const LayerNormBackward& b, const GradSlot& slot, F value) {
  with_grad_type<T>(slot, [&](auto zero) {
    auto* out = slot.tensor.data<decltype(zero)>();
    ctx.pool().parallel_for(b.p.cols, row_grain(b.p.rows), [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        Accum<T> sum = 0;
        for (int64_t r = 0; r < b.p.rows; ++r) sum += value(r, c);
        put(out[c], sum, slot.accumulate);
      }
    });
  });
}

}  // namespace

void layer_norm_cpu_naive_forward(RankContext& ctx, const LayerNormForward& f) {
  with_float(f.p.dtype, [&](auto zero) { forward<decltype(zero)>(ctx, f); });
}

void layer_norm_cpu_naive_backward(RankContext& ctx, const LayerNormBackward& b) {
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = rows_of<T>(b.x), dy = rows_of<T>(b.dy);
    const auto *mean = b.mean.data<Accum<T>>(), *rstd = b.rstd.data<Accum<T>>();
    if (b.dx.wanted()) grad_x<T>(ctx, b);
    if (b.dweight.wanted()) {
      grad_column<T>(ctx, b, b.dweight, [&](int64_t r, int64_t c) {
        return widen(dy[r][c]) * (widen(x[r][c]) - mean[r]) * rstd[r];
      });
    }
    if (b.dbias.wanted())
      grad_column<T>(ctx, b, b.dbias, [&](int64_t r, int64_t c) { return widen(dy[r][c]); });
  });
}

}  // namespace kiln
