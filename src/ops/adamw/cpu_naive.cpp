#include "ops/adamw/adamw.h"
#include "ops/cpu_update.h"

namespace kiln {
namespace {

template <class T, class G, class M>
void update(RankContext& ctx, const AdamWForward& f, const StepScalars& s) {
  using A = Accum<T>;
  const AdamWStep<A> step(f.p, s);
  const G* g = f.grad.data<G>();
  M *m = f.m.data<M>(), *v = f.v.data<M>();
  move_weights(ctx, f.p.count, f.value.data<T>(), f.p.split ? f.low.data<int16_t>() : nullptr,
               [&](A weight, int64_t i) {
                 A m_i = widen(m[i]), v_i = widen(v[i]);
                 const A moved = step.update(weight, static_cast<A>(widen(g[i])), m_i, v_i);
                 m[i] = static_cast<M>(m_i);
                 v[i] = static_cast<M>(v_i);
                 return moved;
               });
}

}  // namespace

void adamw_cpu_naive(RankContext& ctx, const AdamWForward& f) {
  with_update_types(f, [&](auto w, auto g, const StepScalars& s) {
    using T = decltype(w);
    with_grad_type<T>({f.m, false}, [&](auto m) { update<T, decltype(g), decltype(m)>(ctx, f, s); });
  });
}

}  // namespace kiln
