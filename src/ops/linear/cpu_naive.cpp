// The three matmuls as plain loops: the definition the fast ones are checked against. Each output row is
// summed over its inner axis in index order, so the result does not depend on how rows are split.
#include <vector>

#include "ops/cpu_rows.h"
#include "ops/linear/linear.h"

namespace kiln {
namespace {

template <class T>
void forward(RankContext& ctx, const LinearForward& f) {
  const auto x = rows_of<T>(f.x), y = rows_of<T>(f.y), w = rows_of<T>(f.weight);
  ctx.pool().parallel_for(f.p.rows, row_grain(f.p.in * f.p.out), [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      for (int64_t n = 0; n < f.p.out; ++n) {
        Accum<T> sum = 0;
        for (int64_t k = 0; k < f.p.in; ++k) sum += widen(x[m][k]) * widen(w[n][k]);
        y[m][n] = static_cast<T>(sum);
      }
    }
  });
}

// dx[m, :] = sum over n of dy[m, n] W[n, :]
template <class T>
void dgrad(RankContext& ctx, const LinearBackward& b) {
  const auto dy = rows_of<T>(b.dy), w = rows_of<T>(b.weight), dx = rows_of<T>(b.dx.tensor);
  ctx.pool().parallel_for(b.p.rows, row_grain(b.p.in * b.p.out), [&](int64_t begin, int64_t end) {
    std::vector<Accum<T>> sum(static_cast<std::size_t>(b.p.in));
    for (int64_t m = begin; m < end; ++m) {
      std::fill(sum.begin(), sum.end(), Accum<T>(0));
      for (int64_t n = 0; n < b.p.out; ++n) {
        const Accum<T> g = widen(dy[m][n]);
        for (int64_t k = 0; k < b.p.in; ++k) sum[k] += g * widen(w[n][k]);
      }
      for (int64_t k = 0; k < b.p.in; ++k) put(dx[m][k], sum[k], b.dx.accumulate);
    }
  });
}

// dW[n, :] = sum over m of dy[m, n] x[m, :]
template <class T, class G>
void wgrad(RankContext& ctx, const LinearBackward& b) {
  const auto dy = rows_of<T>(b.dy), x = rows_of<T>(b.x);
  const auto dw = rows_of<G>(b.dweight.tensor);
  ctx.pool().parallel_for(b.p.out, row_grain(b.p.in * b.p.rows), [&](int64_t begin, int64_t end) {
    std::vector<Accum<T>> sum(static_cast<std::size_t>(b.p.in));
    for (int64_t n = begin; n < end; ++n) {
      std::fill(sum.begin(), sum.end(), Accum<T>(0));
      for (int64_t m = 0; m < b.p.rows; ++m) {
        const Accum<T> g = widen(dy[m][n]);
        for (int64_t k = 0; k < b.p.in; ++k) sum[k] += g * widen(x[m][k]);
      }
      for (int64_t k = 0; k < b.p.in; ++k) put(dw[n][k], sum[k], b.dweight.accumulate);
    }
  });
}

}  // namespace

void linear_cpu_naive_forward(RankContext& ctx, const LinearForward& f) {
  with_float(f.p.dtype, [&](auto zero) { forward<decltype(zero)>(ctx, f); });
}

void linear_cpu_naive_backward(RankContext& ctx, const LinearBackward& b) {
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (b.dx.wanted()) dgrad<T>(ctx, b);
    if (b.dweight.wanted()) with_grad_type<T>(b.dweight, [&](auto g) { wgrad<T, decltype(g)>(ctx, b); });
  });
}

}  // namespace kiln
