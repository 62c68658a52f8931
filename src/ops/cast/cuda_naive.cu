// naive: the readable baseline. One thread per element, a row of the grid per row of the matrix.
// Memory bound: one read and one write.
#include "ops/cast/cast.h"
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/rows.cuh"

namespace kiln {
namespace {

template <class S, class T>
__global__ void cast_kernel(RowView<S> x, RowView<T> y, int64_t cols, bool accumulate) {
  const int64_t r = blockIdx.x;
  for (int64_t c = first_column(); c < cols; c += column_step())
    put_grad(y[r][c], to_accum(x[r][c]), accumulate);
}

}  // namespace

void cast_cuda_naive(RankContext& ctx, const CastCopy& c) {
  with_float(c.p.from, [&](auto from) {
    with_float(c.p.to, [&](auto to) {
      using S = decltype(from);
      using T = decltype(to);
      launch(cast_kernel<S, T>, matrix_grid(c.p.rows, c.p.cols), kThreads, 0, cuda_stream(ctx),
             row_view<S>(c.x), row_view<T>(c.y.tensor), c.p.cols, c.y.accumulate);
    });
  });
}

}  // namespace kiln
