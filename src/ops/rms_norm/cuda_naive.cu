// naive: the readable baseline. One block per row reads it twice, once for the statistic and once for the
// output; the weight gradient is a second kernel that walks down the columns.
// Memory bound: forward reads x and writes y, 2 * rows * cols * element size bytes; backward reads x and dy
// and writes dx, 3 times. Naive asks for 3 and 7 times; what of it reaches memory depends on the caches.
#include "ops/cuda_device/column_sum.cuh"
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/reduce.cuh"
#include "ops/cuda_device/rows.cuh"
#include "ops/rms_norm/rms_norm.h"

namespace kiln {
namespace {

template <class T>
__global__ void forward_kernel(RmsNormProblem p, RowView<T> x, const T* weight, RowView<T> y,
                               Accum<T>* rstd) {
  using A = Accum<T>;
  const int64_t r = blockIdx.x;
  A squares = 0;
  for (int64_t c = threadIdx.x; c < p.cols; c += blockDim.x) squares += to_accum(x[r][c]) * to_accum(x[r][c]);
  squares = block_sum(squares);
  const A scale = 1 / std::sqrt(squares / static_cast<A>(p.cols) + static_cast<A>(p.eps));
  if (threadIdx.x == 0) rstd[r] = scale;
  for (int64_t c = threadIdx.x; c < p.cols; c += blockDim.x) {
    y[r][c] = from_accum<T>(to_accum(x[r][c]) * scale * to_accum(weight[c]));
  }
}

// With n = x * rstd: dx = rstd * (dy * w - n * mean(dy * w * n)).
template <class T>
__global__ void grad_x_kernel(RmsNormProblem p, RowView<T> dy, RowView<T> x, const T* weight,
                              const Accum<T>* rstd, RowView<T> dx, bool accumulate) {
  using A = Accum<T>;
  const int64_t r = blockIdx.x;
  const A scale = rstd[r];
  A dot = 0;
  for (int64_t c = threadIdx.x; c < p.cols; c += blockDim.x) {
    dot += to_accum(dy[r][c]) * to_accum(weight[c]) * to_accum(x[r][c]) * scale;
  }
  const A mean = block_sum(dot) / static_cast<A>(p.cols);
  for (int64_t c = threadIdx.x; c < p.cols; c += blockDim.x) {
    const A n = to_accum(x[r][c]) * scale;
    put_grad(dx[r][c], scale * (to_accum(dy[r][c]) * to_accum(weight[c]) - n * mean), accumulate);
  }
}

// A row's share of dw.
template <class T>
struct WeightTerm {
  RowView<T> dy, x;
  const Accum<T>* rstd;

  __device__ Accum<T> operator()(int64_t r, int64_t c) const {
    return to_accum(dy[r][c]) * to_accum(x[r][c]) * rstd[r];
  }
};

}  // namespace

void rms_norm_cuda_naive_forward(RankContext& ctx, const RmsNormForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(forward_kernel<T>, Grid(f.p.rows), kThreads, 0, cuda_stream(ctx), f.p, row_view<T>(f.x),
           f.weight.data<T>(), row_view<T>(f.y), f.rstd.data<Accum<T>>());
  });
}

void rms_norm_cuda_naive_backward(RankContext& ctx, const RmsNormBackward& b) {
  const Stream stream = cuda_stream(ctx);
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto dy = row_view<T>(b.dy), x = row_view<T>(b.x);
    const Accum<T>* rstd = b.rstd.data<Accum<T>>();
    if (b.dx.wanted()) {
      launch(grad_x_kernel<T>, Grid(b.p.rows), kThreads, 0, stream, b.p, dy, x, b.weight.data<T>(), rstd,
             row_view<T>(b.dx.tensor), b.dx.accumulate);
    }
    if (b.dweight.wanted()) sum_columns<T>(WeightTerm<T>{dy, x, rstd}, b.p.rows, b.p.cols, b.dweight, stream);
  });
}

}  // namespace kiln
