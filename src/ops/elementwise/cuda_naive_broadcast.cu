// naive: the readable baseline of a matrix and a vector. What has a sum along the row takes a block per row,
// the rest a thread per element; a weight's gradient walks down the columns (cuda_device/column_sum.cuh).
// Memory bound: each operand read once, each result written once; mul_columns' backward reads dy twice.
#include "ops/cuda_device/column_sum.cuh"
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/reduce.cuh"
#include "ops/cuda_device/rows.cuh"
#include "ops/elementwise/broadcast.h"

namespace kiln {
namespace {

template <class T>
__global__ void mul_rows_kernel(RowView<T> x, const Accum<T>* s, RowView<T> y, int64_t cols) {
  const int64_t r = blockIdx.x;
  for (int64_t c = first_column(); c < cols; c += column_step())
    y[r][c] = from_accum<T>(to_accum(x[r][c]) * s[r]);
}

template <class T>
struct MulRowsGrads {
  RowView<T> dx;  // null: not wanted
  Accum<T>* ds;   // likewise
  bool add_to_dx, add_to_ds;
};

template <class T>
__global__ void mul_rows_grad_kernel(RowView<T> dy, RowView<T> x, const Accum<T>* s, MulRowsGrads<T> out,
                                     int64_t cols) {
  const int64_t r = blockIdx.x;
  Accum<T> sum = 0;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
    const Accum<T> d = to_accum(dy[r][c]);
    sum += d * to_accum(x[r][c]);
    if (out.dx) put_grad(out.dx[r][c], d * s[r], out.add_to_dx);
  }
  if (out.ds == nullptr) return;  // for all threads alike
  sum = block_sum(sum);
  if (threadIdx.x == 0) put_grad(out.ds[r], sum, out.add_to_ds);
}

template <class T>
__global__ void mul_columns_kernel(RowView<T> x, const T* weight, RowView<T> y, int64_t cols,
                                   bool accumulate) {
  const int64_t r = blockIdx.x;
  for (int64_t c = first_column(); c < cols; c += column_step())
    put_grad(y[r][c], to_accum(x[r][c]) * to_accum(weight[c]), accumulate);
}

template <class T>
struct ProductTerm {
  RowView<T> dy, x;

  __device__ Accum<T> operator()(int64_t r, int64_t c) const {
    return to_accum(dy[r][c]) * to_accum(x[r][c]);
  }
};

template <class T>
__global__ void row_mean_kernel(RowView<T> x, Accum<T>* mean, int64_t cols) {
  const int64_t r = blockIdx.x;
  Accum<T> sum = 0;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) sum += to_accum(x[r][c]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) mean[r] = sum / static_cast<Accum<T>>(cols);
}

template <class T>
__global__ void row_mean_grad_kernel(const Accum<T>* dmean, RowView<T> dx, int64_t cols, bool accumulate) {
  const int64_t r = blockIdx.x;
  const Accum<T> share = dmean[r] / static_cast<Accum<T>>(cols);
  for (int64_t c = first_column(); c < cols; c += column_step()) put_grad(dx[r][c], share, accumulate);
}

// y (+)= x w: forward, and with dy for x the gradient of x.
template <class T>
void times_columns(RankContext& ctx, const BroadcastProblem& p, const Tensor& x, const Tensor& weight,
                   const GradSlot& y) {
  launch(mul_columns_kernel<T>, matrix_grid(p.rows, p.cols), kThreads, 0, cuda_stream(ctx), row_view<T>(x),
         weight.data<T>(), row_view<T>(y.tensor), p.cols, y.accumulate);
}

}  // namespace

void mul_rows_cuda_naive_forward(RankContext& ctx, const MulRowsForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(mul_rows_kernel<T>, matrix_grid(f.p.rows, f.p.cols), kThreads, 0, cuda_stream(ctx),
           row_view<T>(f.x), f.s.data<Accum<T>>(), row_view<T>(f.y), f.p.cols);
  });
}

void mul_rows_cuda_naive_backward(RankContext& ctx, const MulRowsBackward& b) {
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const MulRowsGrads<T> out{row_view<T>(b.dx.tensor),
                              b.ds.wanted() ? b.ds.tensor.data<Accum<T>>() : nullptr, b.dx.accumulate,
                              b.ds.accumulate};
    launch(mul_rows_grad_kernel<T>, Grid(b.p.rows), kThreads, 0, cuda_stream(ctx), row_view<T>(b.dy),
           row_view<T>(b.x), b.s.data<Accum<T>>(), out, b.p.cols);
  });
}

void mul_columns_cuda_naive_forward(RankContext& ctx, const MulColumnsForward& f) {
  with_float(f.p.dtype,
             [&](auto zero) { times_columns<decltype(zero)>(ctx, f.p, f.x, f.weight, {f.y, false}); });
}

void mul_columns_cuda_naive_backward(RankContext& ctx, const MulColumnsBackward& b) {
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (b.dx.wanted()) times_columns<T>(ctx, b.p, b.dy, b.weight, b.dx);
    if (b.dweight.wanted()) {
      sum_columns<T>(ProductTerm<T>{row_view<T>(b.dy), row_view<T>(b.x)}, b.p.rows, b.p.cols, b.dweight,
                     cuda_stream(ctx));
    }
  });
}

void row_mean_cuda_naive_forward(RankContext& ctx, const RowMeanForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(row_mean_kernel<T>, Grid(f.p.rows), kThreads, 0, cuda_stream(ctx), row_view<T>(f.x),
           f.mean.data<Accum<T>>(), f.p.cols);
  });
}

void row_mean_cuda_naive_backward(RankContext& ctx, const RowMeanBackward& b) {
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(row_mean_grad_kernel<T>, matrix_grid(b.p.rows, b.p.cols), kThreads, 0, cuda_stream(ctx),
           b.dmean.data<Accum<T>>(), row_view<T>(b.dx.tensor), b.p.cols, b.dx.accumulate);
  });
}

}  // namespace kiln
