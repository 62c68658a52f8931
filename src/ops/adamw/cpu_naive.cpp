#include <cmath>

#include "ops/adamw/adamw.h"
#include "ops/cpu_rows.h"

namespace kiln {
namespace {

template <class T, class G>
void update(RankContext& ctx, const AdamWForward& f, const StepScalars& s) {
  using A = Accum<T>;
  const AdamWStep<A> step(f.p, s);
  T* w = f.value.data<T>();
  int16_t* low = f.p.split ? f.low.data<int16_t>() : nullptr;
  const G* g = f.grad.data<G>();
  A* m = f.m.data<A>();
  A* v = f.v.data<A>();
  ctx.pool().parallel_for(f.p.count, 8192, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const A grad = static_cast<A>(widen(g[i]));
      if constexpr (std::is_same_v<T, bf16>) {
        if (low != nullptr) {
          const SplitFloat n = split_float(step.update(join_float(w[i], low[i]), grad, m[i], v[i]));
          w[i] = n.high;
          low[i] = n.low;
          continue;
        }
      }
      w[i] = static_cast<T>(step.update(widen(w[i]), grad, m[i], v[i]));
    }
  });
}

}  // namespace

void adamw_cpu_naive(RankContext& ctx, const AdamWForward& f) {
  const auto& s = *reinterpret_cast<const StepScalars*>(f.scalars.raw());
  if (s.bad_attempt != 0) return;
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_grad_type<T>({f.grad, false}, [&](auto g) { update<T, decltype(g)>(ctx, f, s); });
  });
}

}  // namespace kiln
