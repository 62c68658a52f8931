// fused: vectors of fp32 over a table of sines and cosines, one row of D / 2 each per position, recomputed in
// every call. Sines are slow, so few are taken: with t = 32 h + l, the angle's sine and cosine follow from
// those of 32 h and of l by the addition theorem, all in double. The table is exact to fp32's last place.
// Memory bound: q and k read and written once, in either direction; the table is 4 T D bytes and stays in
// cache.
#include <cmath>

#include "ops/cpu_fused.h"
#include "ops/rope/rope.h"

namespace kiln {
namespace {

template <class T>
struct RopeRow {
  const T* in;
  T* out;
  bool accumulate;
  int64_t heads, pairs;
  const float *cosine, *sine;  // [pairs]
  float sign;
};

struct Turn {
  double cosine, sine;
};

constexpr int64_t kStride = 32;  // positions between two coarse turns

int64_t coarse_count(const RopeProblem& p) { return (p.T + kStride - 1) / kStride; }

}  // namespace
}  // namespace kiln

#define KILN_SIMD_FILE "ops/rope/cpu_fused_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln {
namespace {

// The workspace: coarse and fine turns, then cosines and sines [T, pairs].
struct Table {
  Turn* turns;  // [coarse + kStride, pairs]
  float *cosine, *sine;

  Table(const RopeProblem& p, const Tensor& workspace)
      : turns(reinterpret_cast<Turn*>(workspace.raw())),
        cosine(reinterpret_cast<float*>(turns + (coarse_count(p) + kStride) * p.pairs())),
        sine(cosine + p.T * p.pairs()) {}

  void fill(RankContext& ctx, const RopeProblem& p) const {
    const int64_t coarse = coarse_count(p), pairs = p.pairs();
    ctx.pool().parallel_for(coarse + kStride, row_grain(32 * pairs), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const double position = static_cast<double>(row < coarse ? p.offset + row * kStride : row - coarse);
        for (int64_t i = 0; i < pairs; ++i) {
          const double angle = position * rope_frequency(p, i);
          turns[row * pairs + i] = {std::cos(angle), std::sin(angle)};
        }
      }
    });
    ctx.pool().parallel_for(p.T, row_grain(pairs), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const Turn *a = turns + t / kStride * pairs, *b = turns + (coarse + t % kStride) * pairs;
        for (int64_t i = 0; i < pairs; ++i) {
          cosine[t * pairs + i] = static_cast<float>(a[i].cosine * b[i].cosine - a[i].sine * b[i].sine);
          sine[t * pairs + i] = static_cast<float>(a[i].sine * b[i].cosine + a[i].cosine * b[i].sine);
        }
      }
    });
  }
};

// Interleaved weights are turned into rotate-half ones at import; this keeps them usable as they are.
template <class T>
void rope_interleaved_row(const RopeRow<T>& a) {
  for (int64_t h = 0; h < a.heads; ++h) {
    for (int64_t i = 0; i < a.pairs; ++i) {
      const int64_t at = 2 * (h * a.pairs + i);
      const float u = widen(a.in[at]), v = widen(a.in[at + 1]), c = a.cosine[i], s = a.sign * a.sine[i];
      put(a.out[at], u * c - v * s, a.accumulate);
      put(a.out[at + 1], u * s + v * c, a.accumulate);
    }
  }
}

}  // namespace

std::size_t rope_cpu_fused_workspace(const RopeProblem& p, Pass) {
  return static_cast<std::size_t>(p.pairs()) *
         (static_cast<std::size_t>(coarse_count(p) + kStride) * sizeof(Turn) +
          2 * static_cast<std::size_t>(p.T) * sizeof(float));
}

void rope_cpu_fused(RankContext& ctx, const RopeRotation& f) {
  const RopeProblem& p = f.p;
  if (p.rows() == 0 || p.D == 0) return;
  const Table table(p, f.workspace);
  table.fill(ctx, p);
  with_narrow_float(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto kernel =
        p.interleaved ? rope_interleaved_row<T> : KILN_SIMD_PICK(ctx.traits().isa, rope_row<T>);
    const auto turn = [&](const Tensor& in, const GradSlot& out, int64_t heads, int64_t row) {
      if (!out.wanted()) return;
      const int64_t at = row % p.T * p.pairs();
      kernel({rows_of<const T>(in)[row], rows_of<T>(out.tensor)[row], out.accumulate, heads, p.pairs(),
              table.cosine + at, table.sine + at, static_cast<float>(f.sign)});
    };
    ctx.pool().parallel_for(p.rows(), row_grain((p.H + p.Hkv) * p.D), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        turn(f.q, f.q_out, p.H, r);
        turn(f.k, f.k_out, p.Hkv, r);
      }
    });
  });
}

}  // namespace kiln
