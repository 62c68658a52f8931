// naive: the readable baseline. Forward copies one row per block. Backward gives each vocabulary row a block
// that walks all tokens in order and sums those that used it: no atomics, so the same bits every time.
// Memory bound: forward moves each token's row twice, 2 * tokens * cols * element size bytes; backward reads
// dy once and writes the whole gradient. What naive adds is vocab * tokens * 4 bytes of token reads, from
// cache.
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/rows.cuh"
#include "ops/embedding/embedding.h"

namespace kiln {
namespace {

template <class T>
__global__ void forward_kernel(EmbeddingProblem p, const int32_t* tokens, RowView<T> weight, RowView<T> y) {
  const int64_t t = blockIdx.x;
  const int32_t token = tokens[t];
  const bool known = token >= 0 && token < p.vocab;
  for (int64_t c = first_column(); c < p.cols; c += column_step()) {
    y[t][c] = known ? weight[token][c] : from_accum<T>(token == kTokenElsewhere ? 0.0f : NAN);
  }
}

// Block (v, y): vocabulary row v, columns y * kThreads ..; grid.y times kThreads columns at a time.
template <class T, class G>
__global__ void backward_kernel(EmbeddingProblem p, const int32_t* tokens, RowView<T> dy, RowView<G> dweight,
                                bool accumulate) {
  __shared__ int32_t tile[kThreads];
  const int64_t v = blockIdx.x;
  // Counted by whole blocks, so that all threads of the block reach every barrier.
  for (int64_t begin = static_cast<int64_t>(blockIdx.y) * kThreads; begin < p.cols; begin += column_step()) {
    const int64_t c = begin + threadIdx.x;
    Accum<T> sum = 0;
    for (int64_t first = 0; first < p.tokens; first += kThreads) {
      const int64_t mine = first + threadIdx.x;
      const int32_t token = mine < p.tokens ? tokens[mine] : -1;
      tile[threadIdx.x] = token;
      // Also the barrier between filling the tile and reading it. Most tiles hold no user of this row.
      if (__syncthreads_or(token == v) && c < p.cols) {
        const int64_t count = p.tokens - first < kThreads ? p.tokens - first : kThreads;
        for (int64_t i = 0; i < count; ++i) {
          if (tile[i] == v) sum += to_accum(dy[first + i][c]);
        }
      }
      __syncthreads();  // before the next tile overwrites this one
    }
    if (c < p.cols) put_grad(dweight[v][c], sum, accumulate);
  }
}

}  // namespace

void embedding_cuda_naive_forward(RankContext& ctx, const EmbeddingForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(forward_kernel<T>, matrix_grid(f.p.tokens, f.p.cols), kThreads, 0, cuda_stream(ctx), f.p,
           f.tokens.data<int32_t>(), row_view<T>(f.weight), row_view<T>(f.y));
  });
}

void embedding_cuda_naive_backward(RankContext& ctx, const EmbeddingBackward& b) {
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_grad_dtype<T>(b.dweight.tensor.dtype(), [&](auto grad) {
      using G = decltype(grad);
      launch(backward_kernel<T, G>, matrix_grid(b.p.vocab, b.p.cols), kThreads, 0, cuda_stream(ctx), b.p,
             b.tokens.data<int32_t>(), row_view<T>(b.dy), row_view<G>(b.dweight.tensor),
             b.dweight.accumulate);
    });
  });
}

}  // namespace kiln
