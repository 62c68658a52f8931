// fused: each row read once, kept in registers through both sums and the output (cuda_device/row_packs.cuh).
// A group of threads walks several rows with weight and bias in registers; the gradients of these are summed
// over a group's rows there, per block into the workspace, and over the blocks by a second kernel.
// Memory bound: forward reads x and writes y; backward reads x and dy and writes dx (with `accumulate`, reads
// it too).
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/row_packs.cuh"
#include "ops/layer_norm/layer_norm.h"

namespace kiln {
namespace {

template <class T>
struct ForwardRows {
  RowView<T> x, y;
  const T *weight, *bias;
  float *mean, *rstd;
};

template <class T, int kPacks>
__global__ void __launch_bounds__(most_threads(kPacks))
    layer_norm_fused_forward_kernel(LayerNormProblem p, ForwardRows<T> f) {
  constexpr int N = Pack<T>::kSize;
  const int64_t packs = p.cols / N, step = static_cast<int64_t>(gridDim.x) * blockDim.y;
  const float cols = static_cast<float>(p.cols);
  int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  RowPacks<T, kPacks> weight, bias, x;
  weight.load(f.weight, packs);
  bias.load(f.bias, packs);
  if (row < p.rows) x.load(f.x[row], packs);
  for (; row < p.rows; row += step) {
    RowPacks<T, kPacks> now = x;
    if (row + step < p.rows) x.load(f.x[row + step], packs);
    float sum = 0, squares = 0;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < N; ++i) sum += now.at(k, i);
    }
    const float mean = group_sum(sum) / cols;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (now.column(k) >= p.cols) continue;  // zeros there, which are not at the mean
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float d = now.at(k, i) - mean;
        squares += d * d;
      }
    }
    const float rstd = rsqrtf(group_sum(squares) / cols + p.eps);
    if (threadIdx.x == 0) {
      f.mean[row] = mean;
      f.rstd[row] = rstd;
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      float out[N];
#pragma unroll
      for (int i = 0; i < N; ++i) out[i] = (now.at(k, i) - mean) * rstd * weight.at(k, i) + bias.at(k, i);
      now.pack[k] = Pack<T>::of(out);
    }
    now.store(f.y[row], packs);
  }
}

template <class T>
struct BackwardRows {
  RowView<T> dy, x, dx;  // dx null: not wanted
  const T* weight;
  const float *mean, *rstd;
  float *dweight, *dbias;  // partial sums [blocks, cols]; null: not wanted
  bool accumulate;
};

// With n = (x - mean) * rstd and g = dy * w: dx = rstd * (g - mean(g) - n * mean(g * n));
// dw = sum over rows of dy * n, db = sum over rows of dy. dy is 0 beyond the row, and adds nothing to any.
template <class T, int kPacks>
__global__ void __launch_bounds__(most_threads(kPacks), 1)
    layer_norm_fused_backward_kernel(LayerNormProblem p, BackwardRows<T> b) {
  constexpr int N = Pack<T>::kSize;
  const int64_t packs = p.cols / N, step = static_cast<int64_t>(gridDim.x) * blockDim.y;
  const float cols = static_cast<float>(p.cols);
  int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  RowPacks<T, kPacks> weight, x, dy;
  float dw[kPacks][N] = {}, db[kPacks][N] = {};
  weight.load(b.weight, packs);
  if (row < p.rows) {
    x.load(b.x[row], packs);
    dy.load(b.dy[row], packs);
  }
  for (; row < p.rows; row += step) {
    const RowPacks<T, kPacks> x_now = x, dy_now = dy;
    const float mean = b.mean[row], rstd = b.rstd[row];
    float sum = 0, dot = 0;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float d = dy_now.at(k, i), n = (x_now.at(k, i) - mean) * rstd, g = d * weight.at(k, i);
        sum += g;
        dot += g * n;
        dw[k][i] += d * n;
        db[k][i] += d;
      }
    }
    if (row + step < p.rows) {
      x.load(b.x[row + step], packs);
      dy.load(b.dy[row + step], packs);
    }
    if (!b.dx) continue;  // for all threads alike
    sum = group_sum(sum) / cols;
    dot = group_sum(dot) / cols;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (x.column(k) >= p.cols) continue;
      float out[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float n = (x_now.at(k, i) - mean) * rstd;
        out[i] = rstd * (dy_now.at(k, i) * weight.at(k, i) - sum - n * dot);
      }
      put_pack(b.dx[row] + x.column(k), out, b.accumulate);
    }
  }
  const int64_t own = static_cast<int64_t>(blockIdx.x) * p.cols;
  if (b.dweight != nullptr) put_partial(dw, p.cols, b.dweight + own);
  if (b.dbias != nullptr) put_partial(db, p.cols, b.dbias + own);
}

// Blocks that fill an H200's 132 multiprocessors with a thousand threads each.
int64_t forward_blocks(const RowGroups& g, int64_t rows) {
  return std::min<int64_t>(blocks_for(rows, g.rows_per_block),
                           132 * std::max(1, 1024 / (g.threads * g.rows_per_block)));
}

}  // namespace

void layer_norm_cuda_fused_forward(RankContext& ctx, const LayerNormForward& f) {
  const RowGroups g = row_groups(f.p, Pass::forward);
  with_narrow_gpu_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const ForwardRows<T> rows{row_view<T>(f.x), row_view<T>(f.y),     f.weight.data<T>(),
                              f.bias.data<T>(), f.mean.data<float>(), f.rstd.data<float>()};
    with_packs(g.packs, [&](auto packs) {
      launch(layer_norm_fused_forward_kernel<T, decltype(packs)::value>, Grid(forward_blocks(g, f.p.rows)),
             block_of(g), 0, cuda_stream(ctx), f.p, rows);
    });
  });
}

void layer_norm_cuda_fused_backward(RankContext& ctx, const LayerNormBackward& b) {
  const Stream stream = cuda_stream(ctx);
  const RowGroups g = row_groups(b.p, Pass::backward);
  auto* partial = reinterpret_cast<float*>(b.workspace.raw());
  with_narrow_gpu_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const BackwardRows<T> rows{row_view<T>(b.dy),
                               row_view<T>(b.x),
                               row_view<T>(b.dx.tensor),
                               b.weight.data<T>(),
                               b.mean.data<float>(),
                               b.rstd.data<float>(),
                               b.dweight.wanted() ? partial : nullptr,
                               b.dbias.wanted() ? partial + g.blocks * b.p.cols : nullptr,
                               b.dx.accumulate};
    with_packs(g.packs, [&](auto packs) {
      launch(layer_norm_fused_backward_kernel<T, decltype(packs)::value>, Grid(g.blocks), block_of(g),
             partial_shared_bytes(g, b.p.cols), stream, b.p, rows);
    });
    if (b.dweight.wanted()) sum_partials<T>(rows.dweight, g.blocks, b.p.cols, b.dweight, stream);
    if (b.dbias.wanted()) sum_partials<T>(rows.dbias, g.blocks, b.p.cols, b.dbias, stream);
  });
}

}  // namespace kiln
