// The feed-forward layer of the parallelism chapter: Y = (silu(X W1) * (X W2)) W3, W1 and W2 D x F, W3 F x D.
// Here weights are [out, in], so each is stored transposed. As a module whose ranks have parts of the
// weights, and as the equations themselves, in double.
#pragma once

#include <cmath>
#include <vector>

#include "autograd/tape.h"
#include "model/partition.h"
#include "ops/linear/linear.h"
#include "ops/swiglu/swiglu.h"

namespace kiln {

struct ToyFfn {
  static constexpr int64_t kD = 6, kF = 20, kRows = 12;

  ToyFfn(RankContext& ctx, const Partition& p, const ParamLayout& layout) : partition(p) {
    const ShardRange f = p.of(kF);
    const ParamInit init{ParamInit::Kind::normal, 0.5f, 3};
    const ParamPart column{ParamRole::column, {{f.begin, kF}}};
    w1 = &store.add("w1", {f.count, kD}, init, true, column);
    w2 = &store.add("w2", {f.count, kD}, init, true, column);
    w3 = &store.add("w3", {kD, f.count}, init, true, {ParamRole::row, {}, f.begin, kF});
    store.materialize(ctx, layout);
  }

  Tensor forward(RankContext& ctx, const Tensor& x) {
    const Tensor in = partition.enter_shards(ctx, x);
    const Tensor a = swiglu(ctx, linear(ctx, in, *w1), linear(ctx, in, *w2));
    return partition.leave_shards(ctx, linear(ctx, a, *w3));
  }

  const Partition& partition;
  ParamStore store;
  Param *w1, *w2, *w3;
};

using Matrix = std::vector<double>;

// a b of [n, k] and [k, m], each maybe stored transposed.
inline Matrix product(const Matrix& a, bool at, const Matrix& b, bool bt, int64_t n, int64_t k, int64_t m) {
  Matrix c(static_cast<std::size_t>(n * m));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < m; ++j) {
      for (int64_t l = 0; l < k; ++l) {
        const double x = a[static_cast<std::size_t>(at ? l * n + i : i * k + l)];
        const double y = b[static_cast<std::size_t>(bt ? j * k + l : l * m + j)];
        c[static_cast<std::size_t>(i * m + j)] += x * y;
      }
    }
  }
  return c;
}

struct FfnEquations {
  Matrix y, dx, dw1, dw2, dw3;  // gradients of weights as they are stored

  FfnEquations(const Matrix& x, const Matrix& dy, const Matrix& w1, const Matrix& w2, const Matrix& w3) {
    constexpr int64_t B = ToyFfn::kRows, D = ToyFfn::kD, F = ToyFfn::kF;
    const Matrix h1 = product(x, false, w1, true, B, D, F), h2 = product(x, false, w2, true, B, D, F);
    Matrix a = h1, dh1 = h1, dh2 = h1;
    const Matrix da = product(dy, false, w3, false, B, D, F);  // dA = dY W3^T
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double s = 1 / (1 + std::exp(-h1[i]));
      a[i] = h1[i] * s * h2[i];
      dh2[i] = da[i] * h1[i] * s;
      dh1[i] = da[i] * h2[i] * s * (1 + h1[i] * (1 - s));
    }
    y = product(a, false, w3, true, B, F, D);
    dw3 = product(dy, true, a, false, D, B, F);   // dW3 = A^T dY
    dw1 = product(dh1, true, x, false, F, B, D);  // dW1 = X^T dH1
    dw2 = product(dh2, true, x, false, F, B, D);
    dx = product(dh1, false, w1, false, B, F, D);  // dX = dH1 W1^T + dH2 W2^T
    const Matrix more = product(dh2, false, w2, false, B, F, D);
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += more[i];
  }
};

}  // namespace kiln
