// fused: each row of logits comes from memory once per pass, sixteen bytes at a time. Forward keeps a running
// maximum and the sum below it (naive reads the row twice); backward turns the row into its gradient. Rows
// may begin anywhere: a vocabulary of 50,257 puts them at every odd place.
// Memory bound: rows * vocab * element size bytes forward, twice that backward.
#include "ops/cross_entropy/cuda_rows.cuh"
#include "ops/cuda_device/rank.h"

namespace kiln {
namespace {

using namespace loss_rows;

template <class T>
__global__ void __launch_bounds__(1024)
    cross_entropy_fused_loss_kernel(CrossEntropyProblem p, RowView<T> logits, const int32_t* targets,
                                    float* lse, float* losses) {
  const int64_t r = blockIdx.x;
  const int32_t t = targets[r];
  if (t == kIgnoreTarget) {
    if (threadIdx.x == 0) lse[r] = losses[r] = 0;
    return;
  }
  const float all = row_lse(logits[r], p.vocab);
  if (threadIdx.x != 0) return;
  lse[r] = all;
  losses[r] = t >= 0 && t < p.vocab ? all - to_accum(logits[r][t]) : NAN;
}

template <class T>
__device__ void zero_row(T* row, int64_t n) {
  const RowParts<T> parts(row, n);
  for (int64_t i = threadIdx.x; i < parts.head; i += blockDim.x) row[i] = from_accum<T>(0.0f);
  for (int64_t i = threadIdx.x; i < parts.packs; i += blockDim.x)
    store_pack(row + parts.column(i), Pack<T>{});
  for (int64_t i = threadIdx.x; i < parts.tail; i += blockDim.x)
    row[parts.tail_begin() + i] = from_accum<T>(0.0f);
}

template <class T>
__global__ void __launch_bounds__(1024)
    cross_entropy_fused_backward_kernel(CrossEntropyProblem p, const float* dloss, RowView<T> logits,
                                        const int32_t* targets, const float* lse, const float* count,
                                        RowView<T> dlogits, bool accumulate) {
  const int64_t r = blockIdx.x;
  const T* x = logits[r];
  T* out = dlogits[r];
  if (targets[r] == kIgnoreTarget) {
    if (!accumulate) zero_row(out, p.vocab);
    return;
  }
  // A row that counts: the count is at least 1.
  const RowGradient<T> gradient{lse[r], *dloss / *count, targets[r]};
  const RowParts<T> parts(x, out, p.vocab);
  for (int64_t i = threadIdx.x; i < parts.head; i += blockDim.x)
    put_grad(out[i], gradient.at(to_accum(x[i]), i), accumulate);
  for (int64_t first = threadIdx.x; first < parts.packs; first += int64_t{kAhead} * blockDim.x) {
    Pack<T> packs[kAhead];
    load_packs(packs, x + parts.head, first, parts.packs);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int64_t at = first + static_cast<int64_t>(k) * blockDim.x;
      if (at >= parts.packs) break;
      float g[Pack<T>::kSize];
      gradient.of_pack(packs[k], parts.column(at), g);
      put_pack(out + parts.column(at), g, accumulate);
    }
  }
  for (int64_t i = parts.tail_begin() + threadIdx.x; i < p.vocab; i += blockDim.x)
    put_grad(out[i], gradient.at(to_accum(x[i]), i), accumulate);
}

// Two rounds of packs a thread: enough blocks fit on a multiprocessor to hide each other's reductions.
int row_threads(const CrossEntropyProblem& p) {
  return threads_for(p.vocab * static_cast<int64_t>(size_of(p.dtype)) / 16, 2 * kAhead);
}

}  // namespace

void cross_entropy_cuda_fused_forward(RankContext& ctx, const CrossEntropyForward& f) {
  const Stream stream = cuda_stream(ctx);
  float* losses = reinterpret_cast<float*>(f.workspace.raw());
  const int32_t* targets = f.targets.data<int32_t>();
  with_narrow_gpu_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(cross_entropy_fused_loss_kernel<T>, Grid(f.p.rows), row_threads(f.p), 0, stream, f.p,
           row_view<T>(f.logits), targets, f.lse.data<float>(), losses);
  });
  launch(mean_loss_kernel<float>, Grid(1), 1024, 0, stream, f.p.rows, targets, losses, f.loss.data<float>(),
         f.count.data<float>());
}

void cross_entropy_cuda_fused_backward(RankContext& ctx, const CrossEntropyBackward& b) {
  with_narrow_gpu_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(cross_entropy_fused_backward_kernel<T>, Grid(b.p.rows), row_threads(b.p), 0, cuda_stream(ctx), b.p,
           b.dloss.data<float>(), row_view<T>(b.logits), b.targets.data<int32_t>(), b.lse.data<float>(),
           b.count.data<float>(), row_view<T>(b.dlogits.tensor), b.dlogits.accumulate);
  });
}

}  // namespace kiln
