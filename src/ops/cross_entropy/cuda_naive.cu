// naive: the readable baseline. One block per token reads its logits twice (maximum, then sum); one more
// block adds up the tokens' losses in double, in an order that depends on their number alone.
// Memory bound: forward reads the logits once, rows * vocab * element size bytes; backward reads them and
// writes their gradient, twice as much.
#include "ops/cross_entropy/cuda_rows.cuh"
#include "ops/cuda_device/rank.h"

namespace kiln {
namespace {

template <class T>
__global__ void row_loss_kernel(CrossEntropyProblem p, RowView<T> logits, const int32_t* targets,
                                Accum<T>* lse, Accum<T>* losses) {
  using A = Accum<T>;
  const int64_t r = blockIdx.x;
  A top = -INFINITY, sum = 0;
  for (int64_t v = threadIdx.x; v < p.vocab; v += blockDim.x) top = Larger{}(top, to_accum(logits[r][v]));
  top = block_max(top);
  for (int64_t v = threadIdx.x; v < p.vocab; v += blockDim.x) sum += std::exp(to_accum(logits[r][v]) - top);
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  lse[r] = top + std::log(sum);
  const int32_t t = targets[r];
  const bool known = t >= 0 && t < p.vocab;
  losses[r] = t == kIgnoreTarget ? A(0) : known ? lse[r] - to_accum(logits[r][t]) : A(NAN);
}

template <class T>
__global__ void backward_kernel(CrossEntropyProblem p, const Accum<T>* dloss, RowView<T> logits,
                                const int32_t* targets, const Accum<T>* lse, const Accum<T>* count,
                                RowView<T> dlogits, bool accumulate) {
  using A = Accum<T>;
  const int64_t r = blockIdx.x;
  const int32_t target = targets[r];
  const A weight = target == kIgnoreTarget || *count == 0 ? A(0) : *dloss / *count;
  for (int64_t v = first_column(); v < p.vocab; v += column_step()) {
    const A prob = std::exp(to_accum(logits[r][v]) - lse[r]);
    put_grad(dlogits[r][v], weight * (prob - (v == target ? A(1) : A(0))), accumulate);
  }
}

}  // namespace

void cross_entropy_cuda_naive_forward(RankContext& ctx, const CrossEntropyForward& f) {
  const Stream stream = cuda_stream(ctx);
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Accum<T>;
    A* losses = reinterpret_cast<A*>(f.workspace.raw());
    const int32_t* targets = f.targets.data<int32_t>();
    launch(row_loss_kernel<T>, Grid(f.p.rows), kThreads, 0, stream, f.p, row_view<T>(f.logits), targets,
           f.lse.data<A>(), losses);
    launch(loss_rows::mean_loss_kernel<A>, Grid(1), 1024, 0, stream, f.p.rows, targets, losses,
           f.loss.data<A>(), f.count.data<A>());
  });
}

void cross_entropy_cuda_naive_backward(RankContext& ctx, const CrossEntropyBackward& b) {
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Accum<T>;
    launch(backward_kernel<T>, matrix_grid(b.p.rows, b.p.vocab), kThreads, 0, cuda_stream(ctx), b.p,
           b.dloss.data<A>(), row_view<T>(b.logits), b.targets.data<int32_t>(), b.lse.data<A>(),
           b.count.data<A>(), row_view<T>(b.dlogits.tensor), b.dlogits.accumulate);
  });
}

}  // namespace kiln
