#include <cmath>

#include "ops/cpu_rows.h"
#include "ops/rope/rope.h"

namespace kiln {
namespace {

// Turns pair i of every head of one row; both values are read before either is written.
template <class T>
void turn(const RopeProblem& p, const T* in, T* out, bool accumulate, int64_t heads, int64_t pair,
          Accum<T> cosine, Accum<T> sine) {
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t first = h * p.D + (p.interleaved ? 2 * pair : pair);
    const int64_t second = first + (p.interleaved ? 1 : p.pairs());
    const Accum<T> a = widen(in[first]), b = widen(in[second]);
    put(out[first], a * cosine - b * sine, accumulate);
    put(out[second], a * sine + b * cosine, accumulate);
  }
}

}  // namespace

void rope_cpu_naive(RankContext& ctx, const RopeRotation& f) {
  const RopeProblem& p = f.p;
  with_float(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Accum<T>;
    const auto q = rows_of<T>(f.q), k = rows_of<T>(f.k);
    const auto q_out = f.q_out.wanted() ? rows_of<T>(f.q_out.tensor) : Rows<T>{};
    const auto k_out = f.k_out.wanted() ? rows_of<T>(f.k_out.tensor) : Rows<T>{};
    ctx.pool().parallel_for(p.rows(), row_grain((p.H + p.Hkv) * p.D), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const double position = static_cast<double>(p.offset + r % p.T);
        for (int64_t i = 0; i < p.pairs(); ++i) {
          const double angle = position * rope_frequency(p, i);
          const A cosine = static_cast<A>(std::cos(angle)), sine = static_cast<A>(f.sign * std::sin(angle));
          if (f.q_out.wanted()) turn(p, q[r], q_out[r], f.q_out.accumulate, p.H, i, cosine, sine);
          if (f.k_out.wanted()) turn(p, k[r], k_out[r], f.k_out.accumulate, p.Hkv, i, cosine, sine);
        }
      }
    });
  });
}

}  // namespace kiln
