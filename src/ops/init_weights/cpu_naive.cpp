#include "ops/cpu_rows.h"
#include "ops/init_weights/init_weights.h"

namespace kiln {

void init_weights_cpu_naive(RankContext& ctx, const InitWeightsForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* w = f.flat.data<T>();
    int16_t* low = f.p.split ? f.low.data<int16_t>() : nullptr;
    ctx.pool().parallel_for(f.p.count, 2048, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float value = drawn_weight(f.init, f.key, f.slice.at(f.first + i));
        if constexpr (std::is_same_v<T, bf16>) {
          if (low != nullptr) {
            const SplitFloat s = split_float(value);
            w[i] = s.high;
            low[i] = s.low;
            continue;
          }
        }
        w[i] = static_cast<T>(static_cast<Accum<T>>(value));
      }
    });
  });
}

}  // namespace kiln
