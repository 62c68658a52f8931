// The row kernels behind the fused variants of rms_norm and add_rms_norm. A row is read once: its threads
// keep it in registers, in packs of 16 bytes, through the sum and the output. Short rows have a warp each,
// long ones a block; either way a group of threads walks several rows with the weight in registers, and asks
// for the next row before it finishes the present one, so that memory is never idle.
//
// Memory bound: forward reads x and writes y; backward reads x and dy and writes dx (with `accumulate`, reads
// it too). The weight gradient is summed over a group's rows in registers, per block into the workspace, and
// over the blocks by a second kernel, in an order fixed by the problem: no atomics.
#pragma once

#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/row_packs.cuh"
#include "ops/rms_norm/rms_norm.h"

namespace kiln::rms_norm_rows {

template <class T>
struct ForwardRows {
  RowView<T> x, residual, sum, y;  // residual and sum only where they are added
  const T* weight;
  float* rstd;
};

template <class T, int kPacks, bool kAdd>
__global__ void __launch_bounds__(most_threads(kPacks)) forward_kernel(RmsNormProblem p, ForwardRows<T> f) {
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

// With n = x * rstd: dx = rstd * (dy * w - n * mean(dy * w * n)); dw = sum over rows of dy * n.
template <class T, int kPacks>
__global__ void __launch_bounds__(most_threads(kPacks)) backward_kernel(RmsNormProblem p, BackwardRows<T> b) {
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

template <class T, bool kAdd>
void run_forward(RankContext& ctx, const RmsNormProblem& p, const ForwardRows<T>& rows) {
  const RowGroups g = row_groups(p, Pass::forward);
  with_packs(g.packs, [&](auto packs) {
    launch(forward_kernel<T, decltype(packs)::value, kAdd>, Grid(g.blocks), block_of(g), 0, cuda_stream(ctx),
           p, rows);
  });
}

}  // namespace kiln::rms_norm_rows
