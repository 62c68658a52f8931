#include "ops/cpu_rows.h"
#include "ops/sgd/sgd.h"

namespace kiln {
namespace {

template <class T, class G>
void update(RankContext& ctx, const SgdForward& f, const StepScalars& s) {
  using A = Accum<T>;
  const A lr = static_cast<A>(s.lr), clip = static_cast<A>(s.clip);
  const A momentum = static_cast<A>(f.p.momentum), decay = static_cast<A>(f.p.decay);
  T* w = f.value.data<T>();
  const G* g = f.grad.data<G>();
  A* b = f.p.momentum != 0 ? f.b.data<A>() : nullptr;
  int16_t* low = f.p.split ? f.low.data<int16_t>() : nullptr;
  auto moved = [&](A weight, int64_t i) {
    A step = clip * static_cast<A>(widen(g[i])) + decay * weight;
    if (b != nullptr) step = b[i] = momentum * b[i] + step;
    return weight - lr * step;
  };
  ctx.pool().parallel_for(f.p.count, 8192, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if constexpr (std::is_same_v<T, bf16>) {
        if (low != nullptr) {
          const SplitFloat n = split_float(moved(join_float(w[i], low[i]), i));
          w[i] = n.high;
          low[i] = n.low;
          continue;
        }
      }
      w[i] = static_cast<T>(moved(widen(w[i]), i));
    }
  });
}

}  // namespace

void sgd_cpu_naive(RankContext& ctx, const SgdForward& f) {
  const auto& s = *reinterpret_cast<const StepScalars*>(f.scalars.raw());
  if (s.bad_attempt != 0) return;
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_grad_type<T>({f.grad, false}, [&](auto g) { update<T, decltype(g)>(ctx, f, s); });
  });
}

}  // namespace kiln
