// A block takes a row of logits, as in cross_entropy: one read. Joining the ranks' parts is a thread a row.
#include "dist/tensor/vocab_rows.h"
#include "ops/cross_entropy/cuda_rows.cuh"
#include "ops/cuda_device/rank.h"

namespace kiln {
namespace {

using namespace loss_rows;

__global__ void local_ids_kernel(const int32_t* ids, int64_t count, VocabPart here, int32_t* out) {
  const int64_t i = flat_index();
  if (i < count) out[i] = here.local(ids[i]);
}

template <class T>
__global__ void __launch_bounds__(1024)
    row_parts_kernel(RowView<T> logits, int64_t vocab, const int32_t* targets, RowPart* parts) {
  const int64_t r = blockIdx.x;
  const int32_t t = targets[r];
  if (t == kIgnoreTarget) {
    if (threadIdx.x == 0) parts[r] = {0, 0};
    return;
  }
  const float lse = row_lse(logits[r], vocab);
  if (threadIdx.x != 0) return;
  const float target = t >= 0 && t < vocab ? to_accum(logits[r][t]) : t == kTokenElsewhere ? 0.0f : NAN;
  parts[r] = {lse, target};
}

__global__ void join_kernel(const RowPart* parts, int ranks, int64_t rows, const int32_t* targets, float* lse,
                            float* losses) {
  const int64_t r = flat_index();
  if (r >= rows) return;
  const bool counts = targets[r] != kIgnoreTarget;
  const float all = counts ? joined_lse(parts + r, ranks, rows) : 0;
  lse[r] = all;
  losses[r] = counts ? all - joined_target(parts + r, ranks, rows) : 0;
}

}  // namespace

void local_ids_cuda(RankContext& ctx, const Tensor& ids, const VocabPart& here, const Tensor& out) {
  launch(local_ids_kernel, flat_grid(ids.numel()), kThreads, 0, cuda_stream(ctx), ids.data<int32_t>(),
         ids.numel(), here, out.data<int32_t>());
}

void row_parts_cuda(RankContext& ctx, const Tensor& logits, const Tensor& local_targets,
                    const Tensor& parts) {
  with_narrow_gpu_float(logits.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t vocab = logits.dim(1);
    launch(row_parts_kernel<T>, Grid(logits.dim(0)),
           threads_for(vocab * static_cast<int64_t>(sizeof(T)) / 16, 2 * kAhead), 0, cuda_stream(ctx),
           row_view<T>(logits), vocab, local_targets.data<int32_t>(),
           reinterpret_cast<RowPart*>(parts.data<float>()));
  });
}

void join_row_parts_cuda(RankContext& ctx, const Tensor& parts, const Tensor& local_targets,
                         const Tensor& lse, const Tensor& losses) {
  launch(join_kernel, flat_grid(lse.numel()), kThreads, 0, cuda_stream(ctx),
         reinterpret_cast<const RowPart*>(parts.data<float>()), static_cast<int>(parts.dim(0)), lse.numel(),
         local_targets.data<int32_t>(), lse.data<float>(), losses.data<float>());
}

void mean_of_rows_cuda(RankContext& ctx, const Tensor& losses, const Tensor& local_targets,
                       const Tensor& loss, const Tensor& count) {
  launch(mean_loss_kernel<float>, Grid(1), 1024, 0, cuda_stream(ctx), losses.numel(),
         local_targets.data<int32_t>(), losses.data<float>(), loss.data<float>(),
         count.defined() ? count.data<float>() : nullptr);
}

}  // namespace kiln
