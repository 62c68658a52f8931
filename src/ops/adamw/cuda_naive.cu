// naive: the readable baseline. One launch per parameter, one thread per weight.
// Memory bound: read w, g, m, v and write w, m, v: 28 bytes a weight in fp32, 26 with split weights and bf16
// gradients. The step's record is read by every thread, from cache.
#include "ops/adamw/adamw.h"
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/rows.cuh"

namespace kiln {
namespace {

template <class T, class G, class M>
struct AdamWRange {
  T* w;
  int16_t* low;  // null unless split
  const G* g;
  M *m, *v;
};

template <class T, class G, class M>
__global__ void adamw_kernel(AdamWProblem p, AdamWRange<T, G, M> range, const StepScalars* s) {
  const int64_t i = flat_index();
  if (i >= p.count || !s->updates()) return;
  using A = Accum<T>;
  const AdamWStep<A> step(p, *s);
  const A g = static_cast<A>(to_accum(range.g[i]));
  A m = to_accum(range.m[i]), v = to_accum(range.v[i]);
  if constexpr (std::is_same_v<T, bf16>) {
    if (range.low != nullptr) {
      const SplitFloat n = split_float(step.update(join_float(range.w[i], range.low[i]), g, m, v));
      range.w[i] = n.high;
      range.low[i] = n.low;
      range.m[i] = from_accum<M>(m);
      range.v[i] = from_accum<M>(v);
      return;
    }
  }
  range.w[i] = from_accum<T>(step.update(to_accum(range.w[i]), g, m, v));
  range.m[i] = from_accum<M>(m);
  range.v[i] = from_accum<M>(v);
}

}  // namespace

void adamw_cuda_naive(RankContext& ctx, const AdamWForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_grad_dtype<T>(f.p.grad_dtype, [&](auto grad) {
      with_grad_dtype<T>(f.p.state, [&](auto state) {
        using G = decltype(grad);
        using M = decltype(state);
        const AdamWRange<T, G, M> range{f.value.data<T>(), f.p.split ? f.low.data<int16_t>() : nullptr,
                                        f.grad.data<G>(), f.m.data<M>(), f.v.data<M>()};
        launch(adamw_kernel<T, G, M>, flat_grid(f.p.count), kThreads, 0, cuda_stream(ctx), f.p, range,
               reinterpret_cast<const StepScalars*>(f.scalars.raw()));
      });
    });
  });
}

}  // namespace kiln
