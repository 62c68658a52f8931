// The row kernels behind the fused variants of softmax and masked_softmax: a row is read once and stays in
// registers through the largest element, the sum and the result. Short rows have a warp each, long ones a
// block. A group has one row: there is no weight to keep from one row to the next, and the GPU's own queue of
// blocks keeps memory busy.
//
// Memory bound: forward reads what a row sees and writes all of it; backward reads y and dy where the row
// sees and writes all of dx (with `accumulate`, reads it too).
#pragma once

#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/row_packs.cuh"

namespace kiln::softmax_rows {

// Rows that see all of their columns. A mask says the same of itself.
struct AllColumns {
  int64_t cols;

  __device__ int64_t visible(int64_t /*row*/) const { return cols; }
};

// Whether a row that sees its first `seen` columns sees element i of the pack that begins at `column`.
// Without a mask it sees a pack whole or not at all.
template <class Mask>
__device__ bool sees(int seen, int column, int i) {
  if constexpr (std::is_same_v<Mask, AllColumns>) return column < seen;
  return column + i < seen;
}

// The fast exponential is off by a few units in the last place of fp32: nothing in 16 bits, too much for
// fp32. The same goes for a product with 1 / sum.
template <class T>
__device__ float exp_of(float x) {
  if constexpr (sizeof(T) == 4) return expf(x);
  return __expf(x);
}

template <class T>
__device__ float quotient(float e, float sum, float inverse) {
  if constexpr (sizeof(T) == 4) return e / sum;
  return e * inverse;
}

// Rows of up to 32 KiB: 512 threads with four packs each.
template <int kPacks>
inline constexpr int kMostThreads = 512;

template <class T>
struct ForwardRows {
  RowView<T> x, y;
  int64_t rows, cols;
  float scale;
};

// What is masked is never computed with: a NaN there stays where it is. A row that sees nothing gets zeros.
template <class T, int kPacks, class Mask>
__global__ void __launch_bounds__(kMostThreads<kPacks>) forward_kernel(Mask mask, ForwardRows<T> f) {
  constexpr int N = Pack<T>::kSize;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= f.rows) return;  // a whole warp, where a block has several rows
  const int seen = static_cast<int>(mask.visible(row));
  RowPacks<T, kPacks> x;
  x.load(f.x[row], (seen + N - 1) / N);
  float value[kPacks][N], top = -INFINITY;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      value[k][i] = f.scale * x.at(k, i);
      if (sees<Mask>(seen, x.column(k), i)) top = Larger{}(top, value[k][i]);
    }
  }
  top = group_max(top);
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      value[k][i] = sees<Mask>(seen, x.column(k), i) ? exp_of<T>(value[k][i] - top) : 0.0f;
      sum += value[k][i];
    }
  }
  sum = group_sum(sum);
  const float inverse = 1.0f / sum;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
#pragma unroll
    for (int i = 0; i < N; ++i)
      value[k][i] = sees<Mask>(seen, x.column(k), i) ? quotient<T>(value[k][i], sum, inverse) : 0.0f;
    x.pack[k] = Pack<T>::of(value[k]);
  }
  x.store(f.y[row], f.cols / N);
}

template <class T>
struct BackwardRows {
  RowView<T> dy, y, dx;
  int64_t rows, cols;
  float scale;
  bool accumulate;
};

// dx = scale * y * (dy - sum(dy * y)) over what the row sees, 0 elsewhere.
template <class T, int kPacks, class Mask>
__global__ void __launch_bounds__(kMostThreads<kPacks>) backward_kernel(Mask mask, BackwardRows<T> b) {
  constexpr int N = Pack<T>::kSize;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= b.rows) return;
  const int seen = static_cast<int>(mask.visible(row));
  RowPacks<T, kPacks> y, dy;
  y.load(b.y[row], (seen + N - 1) / N);
  dy.load(b.dy[row], (seen + N - 1) / N);
  float dot = 0;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (sees<Mask>(seen, y.column(k), i)) dot += dy.at(k, i) * y.at(k, i);
    }
  }
  dot = group_sum(dot);
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (y.column(k) >= b.cols) continue;
    float g[N];
#pragma unroll
    for (int i = 0; i < N; ++i)
      g[i] = sees<Mask>(seen, y.column(k), i) ? b.scale * y.at(k, i) * (dy.at(k, i) - dot) : 0.0f;
    put_pack(b.dx[row] + y.column(k), g, b.accumulate);
  }
}

template <class T, class Mask>
void run_forward(RankContext& ctx, const Mask& mask, const ForwardRows<T>& rows) {
  const RowGroups g = row_groups(rows.rows, rows.cols * static_cast<int64_t>(sizeof(T)), Pass::forward);
  with_packs(g.packs, [&](auto packs) {
    launch(forward_kernel<T, decltype(packs)::value, Mask>, Grid(blocks_for(rows.rows, g.rows_per_block)),
           block_of(g), 0, cuda_stream(ctx), mask, rows);
  });
}

template <class T, class Mask>
void run_backward(RankContext& ctx, const Mask& mask, const BackwardRows<T>& rows) {
  const RowGroups g = row_groups(rows.rows, rows.cols * static_cast<int64_t>(sizeof(T)), Pass::forward);
  with_packs(g.packs, [&](auto packs) {
    launch(backward_kernel<T, decltype(packs)::value, Mask>, Grid(blocks_for(rows.rows, g.rows_per_block)),
           block_of(g), 0, cuda_stream(ctx), mask, rows);
  });
}

}  // namespace kiln::softmax_rows
