// The matmuls as plain loops: the definition the fast ones are checked against. Every sum runs in index
// order, over the heads that share a matrix too, and is rounded once.
#include <vector>

#include "ops/batched_matmul/batched_matmul.h"
#include "ops/cpu_rows.h"

namespace kiln {
namespace {

template <class T>
Rows<T> matrix_of(const Tensor& t, bool in_columns, int64_t cols, int64_t batch, int64_t head) {
  const MatrixAt at = matrix_at(t, in_columns, cols, batch, head);
  return {t.data<T>() + at.offset, at.row_stride};
}

template <class T>
void forward(RankContext& ctx, const BatchedMatmulForward& f) {
  const BatchedMatmulProblem& p = f.p;
  ctx.pool().parallel_for(p.B * p.H, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = i / p.H, h = i % p.H;
      const auto a = matrix_of<T>(f.a, p.a_in_columns, p.K, batch, h);
      const auto b = matrix_of<T>(f.b, p.b_in_columns, p.b_cols(), batch, h / p.group());
      const auto y = matrix_of<T>(f.y, p.y_in_columns, p.N, batch, h);
      for (int64_t m = 0; m < p.M; ++m) {
        for (int64_t n = 0; n < p.N; ++n) {
          Accum<T> sum = 0;
          for (int64_t k = 0; k < p.K; ++k) sum += widen(a[m][k]) * widen(p.transpose_b ? b[n][k] : b[k][n]);
          y[m][n] = static_cast<T>(sum);
        }
      }
    }
  });
}

// da[m, k] = sum over n of dy[m, n] b[k, n]
template <class T>
void grad_a(RankContext& ctx, const BatchedMatmulBackward& g) {
  const BatchedMatmulProblem& p = g.p;
  ctx.pool().parallel_for(p.B * p.H, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = i / p.H, h = i % p.H;
      const auto dy = matrix_of<T>(g.dy, p.y_in_columns, p.N, batch, h);
      const auto b = matrix_of<T>(g.b, p.b_in_columns, p.b_cols(), batch, h / p.group());
      const auto da = matrix_of<T>(g.da.tensor, p.a_in_columns, p.K, batch, h);
      for (int64_t m = 0; m < p.M; ++m) {
        for (int64_t k = 0; k < p.K; ++k) {
          Accum<T> sum = 0;
          for (int64_t n = 0; n < p.N; ++n) sum += widen(dy[m][n]) * widen(p.transpose_b ? b[n][k] : b[k][n]);
          put(da[m][k], sum, g.da.accumulate);
        }
      }
    }
  });
}

// db[k, n] = sum over the heads that share it, and m, of a[m, k] dy[m, n]
template <class T>
void grad_b(RankContext& ctx, const BatchedMatmulBackward& g) {
  const BatchedMatmulProblem& p = g.p;
  ctx.pool().parallel_for(p.B * p.Hb, 1, [&](int64_t begin, int64_t end) {
    std::vector<Accum<T>> sums(static_cast<std::size_t>(p.K * p.N));  // as [K, N]
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = i / p.Hb, hb = i % p.Hb;
      std::fill(sums.begin(), sums.end(), Accum<T>(0));
      for (int64_t h = hb * p.group(); h < (hb + 1) * p.group(); ++h) {
        const auto a = matrix_of<T>(g.a, p.a_in_columns, p.K, batch, h);
        const auto dy = matrix_of<T>(g.dy, p.y_in_columns, p.N, batch, h);
        for (int64_t m = 0; m < p.M; ++m) {
          for (int64_t k = 0; k < p.K; ++k) {
            for (int64_t n = 0; n < p.N; ++n) sums[k * p.N + n] += widen(a[m][k]) * widen(dy[m][n]);
          }
        }
      }
      const auto db = matrix_of<T>(g.db.tensor, p.b_in_columns, p.b_cols(), batch, hb);
      for (int64_t k = 0; k < p.K; ++k) {
        for (int64_t n = 0; n < p.N; ++n)
          p.transpose_b ? put(db[n][k], sums[k * p.N + n], g.db.accumulate)
                        : put(db[k][n], sums[k * p.N + n], g.db.accumulate);
      }
    }
  });
}

}  // namespace

void batched_matmul_cpu_naive_forward(RankContext& ctx, const BatchedMatmulForward& f) {
  with_float(f.p.dtype, [&](auto zero) { forward<decltype(zero)>(ctx, f); });
}

void batched_matmul_cpu_naive_backward(RankContext& ctx, const BatchedMatmulBackward& b) {
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (b.da.wanted()) grad_a<T>(ctx, b);
    if (b.db.wanted()) grad_b<T>(ctx, b);
  });
}

}  // namespace kiln
