// small_m: attention of a few queries to many keys, as in decoding, where each key and value is used once
// per query and reading them is all the work. A task is one query of one head: its scores, their softmax, the
// sum of values, along D and along the keys as they are in memory. flash gives a tile to every 64 queries and
// computes all its lanes, so that a single query pays for 32.
//
//   bound   k and v read once at the memory's (or the cache's) rate
//   bits    a query's result depends on nothing but its own row, keys and values: not on threads, B or Tq
//
// Saves what naive saves, and naive does backward: flash would make the scores again in another order of
// summing, and the logarithm of their sum would not fit them to the last bits.
#include "ops/attention/cpu/flash_tiles.h"
#include "ops/cpu_fused.h"

namespace kiln {
namespace {

constexpr int64_t kMostQueries = 8;

// One query of one head.
template <class T>
struct SmallMQuery {
  int64_t keys, D, Dp;
  float scale;
  const T* q;         // [D]
  FlashRows<T> k, v;  // [keys][D]
  T* o;               // [D]
  T* probs;           // [all_keys]; 0 for those it does not see
  int64_t all_keys;
  float* scores;  // [keys], scratch
  float* wide_q;  // [Dp], scratch
};

// Whole vectors of any level.
int64_t whole_vectors(int64_t n) { return (n + 15) / 16 * 16; }

}  // namespace
}  // namespace kiln

#define KILN_SIMD_FILE "ops/attention/cpu/small_m_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln {

std::string attention_cpu_small_m_unsupported(const AttentionProblem& p, const DeviceTraits& traits) {
  if (p.Tq > kMostQueries) return cat("takes at most ", kMostQueries, " queries, not ", p.Tq);
  return needs_fp32_or_narrower(p, traits);
}

void attention_cpu_small_m_forward(RankContext& ctx, const AttentionForward& f) {
  with_narrow_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const AttentionProblem& p = f.p;
    const int64_t Dp = whole_vectors(p.D), row = whole_vectors(p.Tk);
    const auto attend = KILN_SIMD_PICK(ctx.traits().isa, attend_to_keys<T>);
    ctx.pool().parallel_for(p.B * p.H * p.Tq, row_grain(p.Tk * p.D), [&](int64_t begin, int64_t end) {
      auto* scratch =
          reinterpret_cast<float*>(ctx.pool().scratch(static_cast<std::size_t>(row + Dp) * sizeof(float)));
      for (int64_t task = begin; task < end; ++task) {
        const int64_t i = task % p.Tq, bh = task / p.Tq, b = bh / p.H, h = bh % p.H, hkv = h / p.group();
        attend({p.visible(i), p.D, Dp, p.scale, head_rows<T>(f.q, b, h, p.D).from(i).base,
                head_rows<T>(f.k, b, hkv, p.D), head_rows<T>(f.v, b, hkv, p.D),
                head_rows<T>(f.o, b, h, p.D).from(i).base, f.probs.data<T>() + task * p.Tk, p.Tk, scratch,
                scratch + row});
      }
    });
  });
}

}  // namespace kiln
