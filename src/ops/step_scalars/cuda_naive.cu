// naive: the readable baseline. The step's record stays on the device: one thread adds a loss, one thread
// decides whether the step is finite; the squares are summed by a block per chunk, then one block sums the
// chunks in a fixed order. Memory bound: square_sum reads every gradient once, count * element size bytes;
// the others move a few words.
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/rows.cuh"
#include "ops/step_scalars/cuda_sum.cuh"

namespace kiln {
namespace {

// Rounded after the product, as on the CPU: a fused multiply-add would give other bits.
template <class T>
__global__ void accumulate_loss_kernel(AccumulateLossProblem p, const T* loss, StepScalars* s) {
  s->loss = (p.first ? 0.0 : s->loss) + __dmul_rn(static_cast<double>(to_accum(*loss)), p.weight);
}

template <class T>
__global__ void chunk_squares_kernel(const T* grads, int64_t count, double* partial) {
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * SquareSumOp::kChunk;
  const int64_t end = begin + SquareSumOp::kChunk < count ? begin + SquareSumOp::kChunk : count;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    const double g = static_cast<double>(to_accum(grads[i]));
    sum += g * g;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

template <class T>
__global__ void loss_gradient_kernel(double share, const StepScalars* s, T* grad) {
  *grad = from_accum<T>(share * s->loss_scale);
}

__global__ void finish_step_scalars_kernel(FinishStepScalarsProblem p, StepScalars* s) { finish(*s, p); }

}  // namespace

void accumulate_loss_cuda_naive(RankContext& ctx, const AccumulateLossForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(accumulate_loss_kernel<T>, Grid(1), 1, 0, cuda_stream(ctx), f.p, f.loss.data<T>(),
           record_of(f.scalars));
  });
}

void square_sum_cuda_naive(RankContext& ctx, const SquareSumForward& f) {
  const Stream stream = cuda_stream(ctx);
  auto* const partial = reinterpret_cast<double*>(f.workspace.raw());
  int64_t first = 0;
  for (const Tensor& range : f.grads) {
    const int64_t chunks = SquareSumOp::chunks(range.numel());
    if (chunks == 0) continue;
    with_float(f.p.dtype, [&](auto zero) {
      using T = decltype(zero);
      launch(chunk_squares_kernel<T>, Grid(chunks), kThreads, 0, stream, range.data<T>(), range.numel(),
             partial + first);
    });
    first += chunks;
  }
  launch(sum_partial_squares_kernel, Grid(1), 1024, 0, stream, partial, first, record_of(f.scalars));
}

void loss_gradient_cuda_naive(RankContext& ctx, const LossGradientForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(loss_gradient_kernel<T>, Grid(1), 1, 0, cuda_stream(ctx), f.p.share, record_of(f.scalars),
           f.grad.data<T>());
  });
}

void finish_step_scalars_cuda_naive(RankContext& ctx, const FinishStepScalarsForward& f) {
  launch(finish_step_scalars_kernel, Grid(1), 1, 0, cuda_stream(ctx), f.p, record_of(f.scalars));
}

}  // namespace kiln
