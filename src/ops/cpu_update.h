// What the optimizers' plain CPU loops share: a weight is moved by the step's formula, in fp32 where it is
// split into a bf16 high half and 16 low bits. A step whose record says it was not finite moves nothing.
#pragma once

#include <source_location>

#include "autograd/rank_context.h"
#include "ops/cpu_rows.h"
#include "ops/step_scalars/step_scalars.h"

namespace kiln {

// w[i] = moved(w[i], i) for all i; `low` is null unless the weights are split.
template <class T, class F>
void move_weights(RankContext& ctx, int64_t count, T* w, int16_t* low, F moved,
                  std::source_location where = std::source_location::current()) {
  const auto part = [&](int64_t begin, int64_t end) {
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
  };
  ctx.pool().parallel_for(count, 8192, part, where);
}

// Calls update(T{}, G{}, record) with the types of the weights and of their gradient, if the step may update.
template <class Forward, class F>
void with_update_types(const Forward& f, F update) {
  const auto& s = *reinterpret_cast<const StepScalars*>(f.scalars.raw());
  if (!s.updates()) return;
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_grad_type<T>({f.grad, false}, [&](auto g) { update(T{}, g, s); });
  });
}

}  // namespace kiln
