// naive: the readable baseline. One thread per element, a row of the grid per row of the matrix.
// Memory bound: read a and b, write y: 3 * rows * cols * element size bytes.
#include "ops/add/add.h"
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/rows.cuh"

namespace kiln {
namespace {

// y may be a itself; each element is read before it is written by the same thread.
template <class T>
__global__ void add_kernel(RowView<T> a, RowView<T> b, RowView<T> y, int64_t cols) {
  const int64_t r = blockIdx.x;
  for (int64_t c = first_column(); c < cols; c += column_step()) {
    y[r][c] = a ? from_accum<T>(to_accum(a[r][c]) + to_accum(b[r][c])) : b[r][c];
  }
}

}  // namespace

void add_cuda_naive_forward(RankContext& ctx, const AddForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(add_kernel<T>, matrix_grid(f.p.rows, f.p.cols), kThreads, 0, cuda_stream(ctx), row_view<T>(f.a),
           row_view<T>(f.b), row_view<T>(f.y), f.p.cols);
  });
}

}  // namespace kiln
