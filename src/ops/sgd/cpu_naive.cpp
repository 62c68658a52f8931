#include "ops/cpu_update.h"
#include "ops/sgd/sgd.h"

namespace kiln {
namespace {

template <class T, class G>
void update(RankContext& ctx, const SgdForward& f, const StepScalars& s) {
  using A = Accum<T>;
  const SgdStep<A> step(f.p, s);
  const G* g = f.grad.data<G>();
  A* b = f.p.momentum != 0 ? f.b.data<A>() : nullptr;
  move_weights(ctx, f.p.count, f.value.data<T>(), f.p.split ? f.low.data<int16_t>() : nullptr,
               [&](A weight, int64_t i) {
                 return step.update(weight, static_cast<A>(widen(g[i])), b != nullptr ? b + i : nullptr);
               });
}

}  // namespace

void sgd_cpu_naive(RankContext& ctx, const SgdForward& f) {
  with_update_types(
      f, [&](auto w, auto g, const StepScalars& s) { update<decltype(w), decltype(g)>(ctx, f, s); });
}

}  // namespace kiln
