#include "ops/adamw/adamw.h"
#include "ops/cpu_update.h"

namespace kiln {
namespace {

template <class T, class G>
void update(RankContext& ctx, const AdamWForward& f, const StepScalars& s) {
  using A = Accum<T>;
  const AdamWStep<A> step(f.p, s);
  const G* g = f.grad.data<G>();
  A* m = f.m.data<A>();
  A* v = f.v.data<A>();
  move_weights(
      ctx, f.p.count, f.value.data<T>(), f.p.split ? f.low.data<int16_t>() : nullptr,
      [&](A weight, int64_t i) { return step.update(weight, static_cast<A>(widen(g[i])), m[i], v[i]); });
}

}  // namespace

void adamw_cpu_naive(RankContext& ctx, const AdamWForward& f) {
  with_update_types(
      f, [&](auto w, auto g, const StepScalars& s) { update<decltype(w), decltype(g)>(ctx, f, s); });
}

}  // namespace kiln
