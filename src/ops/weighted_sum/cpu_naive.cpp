#include "ops/cpu_rows.h"
#include "ops/weighted_sum/weighted_sum.h"

namespace kiln {

void weighted_sum_cpu_naive_forward(RankContext& ctx, const WeightedSumForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = rows_of<T>(f.x);
    const T* w = f.weight.data<T>();
    T* y = f.y.data<T>();
    ctx.pool().parallel_for(f.p.rows, row_grain(f.p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        Accum<T> sum = 0;
        for (int64_t c = 0; c < f.p.cols; ++c) sum += widen(x[r][c]) * widen(w[c]);
        y[r] = static_cast<T>(sum);
      }
    });
  });
}

// dx[r, c] = dy[r] w[c];  dw[c] = sum over r of dy[r] x[r, c], rows in order.
void weighted_sum_cpu_naive_backward(RankContext& ctx, const WeightedSumBackward& b) {
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = rows_of<T>(b.x);
    const T *w = b.weight.data<T>(), *dy = b.dy.data<T>();
    if (b.dx.wanted()) {
      const auto dx = rows_of<T>(b.dx.tensor);
      ctx.pool().parallel_for(b.p.rows, row_grain(b.p.cols), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          for (int64_t c = 0; c < b.p.cols; ++c) put(dx[r][c], widen(dy[r]) * widen(w[c]), b.dx.accumulate);
        }
      });
    }
    if (!b.dweight.wanted()) return;
    with_grad_type<T>(b.dweight, [&](auto g) {
      auto* dw = b.dweight.tensor.data<decltype(g)>();
      ctx.pool().parallel_for(b.p.cols, row_grain(b.p.rows), [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) {
          Accum<T> sum = 0;
          for (int64_t r = 0; r < b.p.rows; ++r) sum += widen(dy[r]) * widen(x[r][c]);
          put(dw[c], sum, b.dweight.accumulate);
        }
      });
    });
  });
}

}  // namespace kiln
