// naive: the readable baseline. One block per row reads it three times (largest, sum, result); backward
// twice. Memory bound: forward reads x and writes y, 2 * rows * cols * element size bytes; backward reads y
// and dy and writes dx, 3 times.
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/reduce.cuh"
#include "ops/cuda_device/rows.cuh"
#include "ops/softmax/softmax.h"

namespace kiln {
namespace {

template <class T>
__global__ void forward_kernel(RowView<T> x, RowView<T> y, int64_t cols) {
  using A = Accum<T>;
  const int64_t r = blockIdx.x;
  A top = -INFINITY;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) top = Larger{}(top, to_accum(x[r][c]));
  top = block_max(top);
  A sum = 0;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) sum += std::exp(to_accum(x[r][c]) - top);
  sum = block_sum(sum);
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x)
    y[r][c] = from_accum<T>(std::exp(to_accum(x[r][c]) - top) / sum);
}

// dx = y * (dy - sum(dy * y))
template <class T>
__global__ void backward_kernel(RowView<T> dy, RowView<T> y, RowView<T> dx, int64_t cols, bool accumulate) {
  using A = Accum<T>;
  const int64_t r = blockIdx.x;
  A dot = 0;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) dot += to_accum(dy[r][c]) * to_accum(y[r][c]);
  dot = block_sum(dot);
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x)
    put_grad(dx[r][c], to_accum(y[r][c]) * (to_accum(dy[r][c]) - dot), accumulate);
}

}  // namespace

void softmax_cuda_naive_forward(RankContext& ctx, const SoftmaxForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(forward_kernel<T>, Grid(f.p.rows), kThreads, 0, cuda_stream(ctx), row_view<T>(f.x),
           row_view<T>(f.y), f.p.cols);
  });
}

void softmax_cuda_naive_backward(RankContext& ctx, const SoftmaxBackward& b) {
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(backward_kernel<T>, Grid(b.p.rows), kThreads, 0, cuda_stream(ctx), row_view<T>(b.dy),
           row_view<T>(b.y), row_view<T>(b.dx.tensor), b.p.cols, b.dx.accumulate);
  });
}

}  // namespace kiln
