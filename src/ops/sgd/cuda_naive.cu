// naive: one launch per parameter, one thread per weight. Memory bound: read w, g and b, write w and b: 20
// bytes a weight in fp32 with momentum, 12 without. The step's record is read by every thread, from cache.
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/rows.cuh"
#include "ops/sgd/sgd.h"

namespace kiln {
namespace {

template <class T, class G>
struct SgdRange {
  T* w;
  int16_t* low;  // null unless split
  const G* g;
  Accum<T>* b;  // null without momentum
};

template <class T, class G>
__global__ void sgd_kernel(SgdProblem p, SgdRange<T, G> range, const StepScalars* s) {
  const int64_t i = flat_index();
  if (i >= p.count || !s->updates()) return;
  using A = Accum<T>;
  const SgdStep<A> step(p, *s);
  const A g = static_cast<A>(to_accum(range.g[i]));
  A* b = range.b != nullptr ? range.b + i : nullptr;
  if constexpr (std::is_same_v<T, bf16>) {
    if (range.low != nullptr) {
      const SplitFloat n = split_float(step.update(join_float(range.w[i], range.low[i]), g, b));
      range.w[i] = n.high;
      range.low[i] = n.low;
      return;
    }
  }
  range.w[i] = from_accum<T>(step.update(to_accum(range.w[i]), g, b));
}

}  // namespace

void sgd_cuda_naive(RankContext& ctx, const SgdForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_grad_dtype<T>(f.p.grad_dtype, [&](auto grad) {
      using G = decltype(grad);
      const SgdRange<T, G> range{f.value.data<T>(), f.p.split ? f.low.data<int16_t>() : nullptr,
                                 f.grad.data<G>(), f.p.momentum != 0 ? f.b.data<Accum<T>>() : nullptr};
      launch(sgd_kernel<T, G>, flat_grid(f.p.count), kThreads, 0, cuda_stream(ctx), f.p, range,
             reinterpret_cast<const StepScalars*>(f.scalars.raw()));
    });
  });
}

}  // namespace kiln
