// naive: the readable baseline. One block per row reads what is seen three times (largest, sum, result) and
// writes all of the row; backward reads it twice. Memory bound: the bytes of the cost function.
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/reduce.cuh"
#include "ops/cuda_device/rows.cuh"
#include "ops/masked_softmax/masked_softmax.h"

namespace kiln {
namespace {

template <class T>
__global__ void forward_kernel(MaskedSoftmaxProblem p, RowView<T> x, RowView<T> y) {
  using A = Accum<T>;
  const int64_t r = blockIdx.x, n = p.visible(r);
  const A scale = static_cast<A>(p.scale);
  A top = -INFINITY;
  for (int64_t c = threadIdx.x; c < n; c += blockDim.x) top = Larger{}(top, scale * to_accum(x[r][c]));
  top = block_max(top);
  A sum = 0;
  for (int64_t c = threadIdx.x; c < n; c += blockDim.x) sum += std::exp(scale * to_accum(x[r][c]) - top);
  sum = block_sum(sum);
  for (int64_t c = threadIdx.x; c < p.Tk; c += blockDim.x) {
    y[r][c] = from_accum<T>(c < n ? std::exp(scale * to_accum(x[r][c]) - top) / sum : A(0));
  }
}

template <class T>
__global__ void backward_kernel(MaskedSoftmaxProblem p, RowView<T> dy, RowView<T> y, RowView<T> dx,
                                bool accumulate) {
  using A = Accum<T>;
  const int64_t r = blockIdx.x, n = p.visible(r);
  A dot = 0;
  for (int64_t c = threadIdx.x; c < n; c += blockDim.x) dot += to_accum(dy[r][c]) * to_accum(y[r][c]);
  dot = block_sum(dot);
  for (int64_t c = threadIdx.x; c < p.Tk; c += blockDim.x) {
    const A g = c < n ? static_cast<A>(p.scale) * to_accum(y[r][c]) * (to_accum(dy[r][c]) - dot) : A(0);
    put_grad(dx[r][c], g, accumulate);
  }
}

}  // namespace

void masked_softmax_cuda_naive_forward(RankContext& ctx, const MaskedSoftmaxForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(forward_kernel<T>, Grid(f.p.rows), kThreads, 0, cuda_stream(ctx), f.p, row_view<T>(f.x),
           row_view<T>(f.y));
  });
}

void masked_softmax_cuda_naive_backward(RankContext& ctx, const MaskedSoftmaxBackward& b) {
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(backward_kernel<T>, Grid(b.p.rows), kThreads, 0, cuda_stream(ctx), b.p, row_view<T>(b.dy),
           row_view<T>(b.y), row_view<T>(b.dx.tensor), b.dx.accumulate);
  });
}

}  // namespace kiln
