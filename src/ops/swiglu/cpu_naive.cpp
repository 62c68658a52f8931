#include <cmath>

#include "ops/cpu_rows.h"
#include "ops/swiglu/swiglu.h"

namespace kiln {

void swiglu_cpu_naive_forward(RankContext& ctx, const SwigluForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto gate = rows_of<T>(f.gate), up = rows_of<T>(f.up), y = rows_of<T>(f.y);
    ctx.pool().parallel_for(f.p.rows, row_grain(f.p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t c = 0; c < f.p.cols; ++c) {
          const auto g = widen(gate[r][c]);
          y[r][c] = static_cast<T>(g / (1 + std::exp(-g)) * widen(up[r][c]));
        }
      }
    });
  });
}

// silu'(g) = s (1 + g (1 - s)) with s = 1 / (1 + exp(-g))
void swiglu_cpu_naive_backward(RankContext& ctx, const SwigluBackward& b) {
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto gate = rows_of<T>(b.gate), up = rows_of<T>(b.up), dy = rows_of<T>(b.dy);
    const auto dgate = b.dgate.wanted() ? rows_of<T>(b.dgate.tensor) : Rows<T>{};
    const auto dup = b.dup.wanted() ? rows_of<T>(b.dup.tensor) : Rows<T>{};
    ctx.pool().parallel_for(b.p.rows, row_grain(b.p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t c = 0; c < b.p.cols; ++c) {
          const auto g = widen(gate[r][c]), s = 1 / (1 + std::exp(-g)), d = widen(dy[r][c]);
          if (b.dgate.wanted())
            put(dgate[r][c], d * widen(up[r][c]) * s * (1 + g * (1 - s)), b.dgate.accumulate);
          if (b.dup.wanted()) put(dup[r][c], d * g * s, b.dup.accumulate);
        }
      }
    });
  });
}

}  // namespace kiln
