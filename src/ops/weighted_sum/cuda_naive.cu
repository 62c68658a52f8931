// naive: the readable baseline. One block per row sums it; backward writes dx with a thread per element and
// sums the weight's gradient down the columns. Memory bound: forward reads x, rows * cols * element size
// bytes; backward reads x and writes dx, twice that.
#include "ops/cuda_device/column_sum.cuh"
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/reduce.cuh"
#include "ops/cuda_device/rows.cuh"
#include "ops/weighted_sum/weighted_sum.h"

namespace kiln {
namespace {

template <class T>
__global__ void forward_kernel(RowView<T> x, const T* weight, T* y, int64_t cols) {
  const int64_t r = blockIdx.x;
  Accum<T> sum = 0;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) sum += to_accum(x[r][c]) * to_accum(weight[c]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) y[r] = from_accum<T>(sum);
}

// dx[r, c] = dy[r] w[c]
template <class T>
__global__ void grad_x_kernel(const T* dy, const T* weight, RowView<T> dx, int64_t cols, bool accumulate) {
  const int64_t r = blockIdx.x;
  for (int64_t c = first_column(); c < cols; c += column_step())
    put_grad(dx[r][c], to_accum(dy[r]) * to_accum(weight[c]), accumulate);
}

// dw[c] = sum over r of this
template <class T>
struct WeightTerm {
  const T* dy;
  RowView<T> x;

  __device__ Accum<T> operator()(int64_t r, int64_t c) const { return to_accum(dy[r]) * to_accum(x[r][c]); }
};

}  // namespace

void weighted_sum_cuda_naive_forward(RankContext& ctx, const WeightedSumForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(forward_kernel<T>, Grid(f.p.rows), kThreads, 0, cuda_stream(ctx), row_view<T>(f.x),
           f.weight.data<T>(), f.y.data<T>(), f.p.cols);
  });
}

void weighted_sum_cuda_naive_backward(RankContext& ctx, const WeightedSumBackward& b) {
  const Stream stream = cuda_stream(ctx);
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* dy = b.dy.data<T>();
    if (b.dx.wanted()) {
      launch(grad_x_kernel<T>, matrix_grid(b.p.rows, b.p.cols), kThreads, 0, stream, dy, b.weight.data<T>(),
             row_view<T>(b.dx.tensor), b.p.cols, b.dx.accumulate);
    }
    if (b.dweight.wanted())
      sum_columns<T>(WeightTerm<T>{dy, row_view<T>(b.x)}, b.p.rows, b.p.cols, b.dweight, stream);
  });
}

}  // namespace kiln
