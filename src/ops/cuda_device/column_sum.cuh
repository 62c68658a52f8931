// A sum down the columns of a matrix, as the plain kernels take it: a weight's gradient. Blocks of 32 columns
// by 16 rows, so that a warp reads neighbours; the 16 partial sums of a column meet in order, so the bits are
// the same every time.
#pragma once

#include "ops/cuda_device/rows.cuh"

namespace kiln {

inline constexpr int kTileCols = 32;
inline constexpr int kTileRows = 16;

// out[c] = sum over rows of term(r, c), in A. Thread (i, k) takes column 32 * block + i, rows k, k + 16, ...
template <class A, class G, class Term>
__global__ void column_sum_kernel(Term term, int64_t rows, int64_t cols, G* out, bool accumulate) {
  __shared__ A partial[kTileRows][kTileCols];
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kTileCols + threadIdx.x;
  A sum = 0;
  if (c < cols) {
    for (int64_t r = threadIdx.y; r < rows; r += kTileRows) sum += term(r, c);
  }
  partial[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || c >= cols) return;
  for (int k = 1; k < kTileRows; ++k) sum += partial[k][threadIdx.x];
  put_grad(out[c], sum, accumulate);
}

// `term` is a struct with a device operator()(row, column); T is the type of the activations.
template <class T, class Term>
void sum_columns(const Term& term, int64_t rows, int64_t cols, const GradSlot& slot, Stream stream) {
  with_grad_dtype<T>(slot.tensor.dtype(), [&](auto grad) {
    using G = decltype(grad);
    launch(column_sum_kernel<Accum<T>, G, Term>, Grid(blocks_for(cols, kTileCols)),
           dim3(kTileCols, kTileRows), 0, stream, term, rows, cols, slot.tensor.data<G>(), slot.accumulate);
  });
}

}  // namespace kiln
