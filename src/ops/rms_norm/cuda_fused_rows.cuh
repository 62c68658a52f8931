// The row kernels behind the fused variants of rms_norm and add_rms_norm. A row is read once: its threads
// keep it in registers, in packs of 16 bytes, through the sum and the output. Short rows have a warp each,
// long ones a block; either way a group of threads walks several rows with the weight in registers, and asks
// for the next row before it finishes the present one, so that memory is never idle.
//
// Floor: forward reads x and writes y; backward reads x and dy and writes dx (with `accumulate`, reads it
// too). The weight gradient is summed over a group's rows in registers, per block into the workspace, and
// over the blocks by a second kernel, in an order fixed by the problem: no atomics.
#pragma once

#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/reduce.cuh"
#include "ops/cuda_device/rows.cuh"
#include "ops/cuda_device/vector.cuh"
#include "ops/cuda_fused.h"
#include "ops/rms_norm/rms_norm.h"

namespace kiln::rms_norm_rows {

template <class V>
__device__ V group_sum(V v) {
  return blockDim.x == 32 ? warp_reduce(v, Add{}) : block_sum(v);
}

template <class T, int kPacks>
struct RowPacks {
  Pack<T> pack[kPacks];

  // Zero beyond the end of the row: adds nothing to a sum.
  __device__ void load(const T* row, int64_t packs) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int64_t at = threadIdx.x + static_cast<int64_t>(k) * blockDim.x;
      pack[k] = at < packs ? load_pack(row + at * Pack<T>::kSize) : Pack<T>{};
    }
  }
  __device__ void store(T* row, int64_t packs) const {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int64_t at = threadIdx.x + static_cast<int64_t>(k) * blockDim.x;
      if (at < packs) store_pack(row + at * Pack<T>::kSize, pack[k]);
    }
  }
  __device__ float at(int k, int i) const { return pack[k][i]; }
};

template <class T>
struct ForwardRows {
  RowView<T> x, residual, sum, y;  // residual and sum only where they are added
  const T* weight;
  float* rstd;
};

template <class T, int kPacks, bool kAdd>
__global__ void forward_kernel(RmsNormProblem p, ForwardRows<T> f) {
  constexpr int N = Pack<T>::kSize;
  const int64_t packs = p.cols / N, step = static_cast<int64_t>(gridDim.x) * blockDim.y;
  int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  RowPacks<T, kPacks> weight, x, other;
  weight.load(f.weight, packs);
  if (row < p.rows) {
    x.load(f.x[row], packs);
    if constexpr (kAdd) other.load(f.residual[row], packs);
  }
  for (; row < p.rows; row += step) {
    RowPacks<T, kPacks> now = x;
    float squares = 0;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if constexpr (kAdd) {
        // The sum as it is stored, rounded: what the norm of a separate op would read.
        float sum[N];
#pragma unroll
        for (int i = 0; i < N; ++i) sum[i] = now.at(k, i) + other.at(k, i);
        now.pack[k] = Pack<T>::of(sum);
      }
#pragma unroll
      for (int i = 0; i < N; ++i) squares += now.at(k, i) * now.at(k, i);
    }
    if (row + step < p.rows) {
      x.load(f.x[row + step], packs);
      if constexpr (kAdd) other.load(f.residual[row + step], packs);
    }
    if constexpr (kAdd) now.store(f.sum[row], packs);
    const float scale = rsqrtf(group_sum(squares) / static_cast<float>(p.cols) + p.eps);
    if (threadIdx.x == 0) f.rstd[row] = scale;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      float normed[N];
#pragma unroll
      for (int i = 0; i < N; ++i) normed[i] = now.at(k, i) * scale * weight.at(k, i);
      now.pack[k] = Pack<T>::of(normed);
    }
    now.store(f.y[row], packs);
  }
}

template <class T>
struct BackwardRows {
  RowView<T> dy, x, dx;  // dx null: not wanted
  const T* weight;
  const float* rstd;
  float* partial;  // [blocks, cols]; null: no weight gradient wanted
  bool accumulate;
};

// The block's rows summed: warps one after the other into shared memory, then out.
template <int kPacks, int N>
__device__ void put_partial(const float (&dw)[kPacks][N], int64_t cols, float* out) {
  extern __shared__ float sums[];  // [cols]; only where a block has several rows at a time
  for (int turn = 0; turn < static_cast<int>(blockDim.y); ++turn) {
    if (blockDim.y > 1) __syncthreads();
    if (static_cast<int>(threadIdx.y) != turn) continue;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int64_t at = (threadIdx.x + static_cast<int64_t>(k) * blockDim.x) * N;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (at + i >= cols) continue;
        const float sum = turn == 0 ? dw[k][i] : sums[at + i] + dw[k][i];
        if (turn + 1 == static_cast<int>(blockDim.y)) {
          out[at + i] = sum;
        } else {
          sums[at + i] = sum;
        }
      }
    }
  }
}

// With n = x * rstd: dx = rstd * (dy * w - n * mean(dy * w * n)); dw = sum over rows of dy * n.
template <class T, int kPacks>
__global__ void backward_kernel(RmsNormProblem p, BackwardRows<T> b) {
  constexpr int N = Pack<T>::kSize;
  const int64_t packs = p.cols / N, step = static_cast<int64_t>(gridDim.x) * blockDim.y;
  int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  RowPacks<T, kPacks> weight, x, dy, before;
  float dw[kPacks][N] = {};
  const bool adds = b.accumulate && b.dx;
  weight.load(b.weight, packs);
  const auto load = [&](int64_t r) {
    x.load(b.x[r], packs);
    dy.load(b.dy[r], packs);
    if (adds) before.load(b.dx[r], packs);
  };
  if (row < p.rows) load(row);
  for (; row < p.rows; row += step) {
    const RowPacks<T, kPacks> x_now = x, dy_now = dy, before_now = before;
    const float scale = b.rstd[row];
    float dot = 0;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float n = x_now.at(k, i) * scale;
        dot += dy_now.at(k, i) * weight.at(k, i) * n;
        dw[k][i] += dy_now.at(k, i) * n;
      }
    }
    if (row + step < p.rows) load(row + step);
    if (!b.dx) continue;  // for all threads alike
    const float mean = group_sum(dot) / static_cast<float>(p.cols);
    RowPacks<T, kPacks> out;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      float g[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        g[i] = scale * (dy_now.at(k, i) * weight.at(k, i) - x_now.at(k, i) * scale * mean);
        if (adds) g[i] += before_now.at(k, i);
      }
      out.pack[k] = Pack<T>::of(g);
    }
    out.store(b.dx[row], packs);
  }
  if (b.partial != nullptr) put_partial(dw, p.cols, b.partial + static_cast<int64_t>(blockIdx.x) * p.cols);
}

constexpr int kSumCols = 32, kSumRows = 16;

// dw[c] = sum over the blocks' partial sums: 16 threads take every 16th of them each, and meet in order.
template <class G>
__global__ void sum_partials_kernel(const float* partial, int64_t blocks, int64_t cols, G* dweight,
                                    bool accumulate) {
  __shared__ float sums[kSumRows][kSumCols];
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kSumCols + threadIdx.x;
  float sum = 0;
  if (c < cols) {
    for (int64_t b = threadIdx.y; b < blocks; b += kSumRows) sum += partial[b * cols + c];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || c >= cols) return;
  for (int k = 1; k < kSumRows; ++k) sum += sums[k][threadIdx.x];
  put_grad(dweight[c], sum, accumulate);
}

// Calls f with the number of packs as a constant.
template <class F>
void with_packs(int packs, F f) {
  if (packs == 1) return f(std::integral_constant<int, 1>{});
  if (packs == 2) return f(std::integral_constant<int, 2>{});
  if (packs == 3) return f(std::integral_constant<int, 3>{});
  f(std::integral_constant<int, 4>{});
}

template <class T, bool kAdd>
void run_forward(RankContext& ctx, const RmsNormProblem& p, const ForwardRows<T>& rows) {
  const RowGroups g = row_groups(p, Pass::forward);
  with_packs(g.packs, [&](auto packs) {
    launch(forward_kernel<T, decltype(packs)::value, kAdd>, Grid(g.blocks),
           dim3(static_cast<unsigned>(g.threads), static_cast<unsigned>(g.rows_per_block)), 0,
           cuda_stream(ctx), p, rows);
  });
}

}  // namespace kiln::rms_norm_rows
