// naive: the readable baseline. One block per row reads it three times (mean, variance, output); backward
// twice, and the weight's and the bias's gradients are kernels of their own that walk down the columns.
// Memory bound: forward reads x and writes y, 2 * rows * cols * element size bytes; backward reads x and dy
// and writes dx, 3 times.
#include "ops/cuda_device/column_sum.cuh"
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/reduce.cuh"
#include "ops/cuda_device/rows.cuh"
#include "ops/layer_norm/layer_norm.h"

namespace kiln {
namespace {

template <class T>
struct RowStats {
  Accum<T>*mean, *rstd;  // [rows]
};

template <class T>
__global__ void forward_kernel(LayerNormProblem p, RowView<T> x, const T* weight, const T* bias, RowView<T> y,
                               RowStats<T> stats) {
  using A = Accum<T>;
  const int64_t r = blockIdx.x;
  const A cols = static_cast<A>(p.cols);
  A sum = 0, squares = 0;
  for (int64_t c = threadIdx.x; c < p.cols; c += blockDim.x) sum += to_accum(x[r][c]);
  const A mean = block_sum(sum) / cols;
  for (int64_t c = threadIdx.x; c < p.cols; c += blockDim.x) {
    const A d = to_accum(x[r][c]) - mean;
    squares += d * d;
  }
  const A rstd = 1 / std::sqrt(block_sum(squares) / cols + static_cast<A>(p.eps));
  if (threadIdx.x == 0) {
    stats.mean[r] = mean;
    stats.rstd[r] = rstd;
  }
  for (int64_t c = threadIdx.x; c < p.cols; c += blockDim.x)
    y[r][c] = from_accum<T>((to_accum(x[r][c]) - mean) * rstd * to_accum(weight[c]) + to_accum(bias[c]));
}

// With n = (x - mean) * rstd and g = dy * w: dx = rstd * (g - mean(g) - n * mean(g * n)).
template <class T>
__global__ void grad_x_kernel(LayerNormProblem p, RowView<T> dy, RowView<T> x, const T* weight,
                              RowStats<T> stats, RowView<T> dx, bool accumulate) {
  using A = Accum<T>;
  const int64_t r = blockIdx.x;
  const A mean = stats.mean[r], rstd = stats.rstd[r], cols = static_cast<A>(p.cols);
  A sum = 0, dot = 0;
  for (int64_t c = threadIdx.x; c < p.cols; c += blockDim.x) {
    const A g = to_accum(dy[r][c]) * to_accum(weight[c]);
    sum += g;
    dot += g * (to_accum(x[r][c]) - mean) * rstd;
  }
  sum = block_sum(sum) / cols;
  dot = block_sum(dot) / cols;
  for (int64_t c = threadIdx.x; c < p.cols; c += blockDim.x) {
    const A g = to_accum(dy[r][c]) * to_accum(weight[c]), n = (to_accum(x[r][c]) - mean) * rstd;
    put_grad(dx[r][c], rstd * (g - sum - n * dot), accumulate);
  }
}

// A row's share of dw, and of db.
template <class T>
struct WeightTerm {
  RowView<T> dy, x;
  RowStats<T> stats;

  __device__ Accum<T> operator()(int64_t r, int64_t c) const {
    return to_accum(dy[r][c]) * (to_accum(x[r][c]) - stats.mean[r]) * stats.rstd[r];
  }
};

template <class T>
struct BiasTerm {
  RowView<T> dy;

  __device__ Accum<T> operator()(int64_t r, int64_t c) const { return to_accum(dy[r][c]); }
};

}  // namespace

void layer_norm_cuda_naive_forward(RankContext& ctx, const LayerNormForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const RowStats<T> stats{f.mean.data<Accum<T>>(), f.rstd.data<Accum<T>>()};
    launch(forward_kernel<T>, Grid(f.p.rows), kThreads, 0, cuda_stream(ctx), f.p, row_view<T>(f.x),
           f.weight.data<T>(), f.bias.data<T>(), row_view<T>(f.y), stats);
  });
}

void layer_norm_cuda_naive_backward(RankContext& ctx, const LayerNormBackward& b) {
  const Stream stream = cuda_stream(ctx);
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto dy = row_view<T>(b.dy), x = row_view<T>(b.x);
    const RowStats<T> stats{b.mean.data<Accum<T>>(), b.rstd.data<Accum<T>>()};
    if (b.dx.wanted()) {
      launch(grad_x_kernel<T>, Grid(b.p.rows), kThreads, 0, stream, b.p, dy, x, b.weight.data<T>(), stats,
             row_view<T>(b.dx.tensor), b.dx.accumulate);
    }
    if (b.dweight.wanted())
      sum_columns<T>(WeightTerm<T>{dy, x, stats}, b.p.rows, b.p.cols, b.dweight, stream);
    if (b.dbias.wanted()) sum_columns<T>(BiasTerm<T>{dy}, b.p.rows, b.p.cols, b.dbias, stream);
  });
}

}  // namespace kiln
