// What flash attention's tiles work on, shared by the vector kernels and the AMX ones: where the rows of a
// head lie, and each task's scratch.
#pragma once

#include <algorithm>
#include <limits>

#include "ops/attention/attention.h"

namespace kiln {

inline constexpr int64_t kFlashTile = 64;  // queries of a tile, and keys
// The running maximum before any key: finite, so that a masked score of -Inf is e^-Inf = 0 and never
// Inf - Inf.
inline constexpr float kFlashLowest = std::numeric_limits<float>::lowest();

template <class T>
struct FlashRows {
  T* base;
  int64_t stride;
  FlashRows from(int64_t row) const { return {base + row * stride, stride}; }
};

// The rows of one head of a [B, T, heads*D] tensor.
template <class T>
FlashRows<T> head_rows(const Tensor& t, int64_t b, int64_t head, int64_t D) {
  return {t.data<T>() + b * t.stride(0) + head * D, t.stride(1)};
}

// Whole vectors for fp32; for bf16 whole AMX tiles, on every CPU, so that the scratch is the same everywhere.
inline int64_t padded_width(const AttentionProblem& p) {
  const int64_t whole = p.dtype == DType::bf16 ? 32 : 16;
  return (p.D + whole - 1) / whole * whole;
}

// Takes pieces of a slot's memory one after another; with a null base it only measures.
class Carver {
 public:
  explicit Carver(float* base) : base_(base) {}
  float* take(int64_t floats) {
    float* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += floats;
    return at;
  }
  template <class T>
  T* take_as(int64_t elements) {
    return reinterpret_cast<T*>(take(elements * static_cast<int64_t>(sizeof(T)) / 4));
  }
  void take_up_to(int64_t used) { used_ = std::max(used_, used); }
  int64_t used() const { return used_; }

 private:
  float* base_ = nullptr;
  int64_t used_ = 0;
};

// A bf16 operand of an AMX matmul is either rows of bf16 or 32-bit pairs of neighbours along the summed
// index.
struct FlashForwardTiles {
  uint16_t* rows = nullptr;           // [tile][Dp]: k or v as they are in memory
  uint32_t* q_pairs = nullptr;        // [Dp / 2][tile]: pairs of channels
  uint32_t* v_pairs = nullptr;        // [tile / 2][Dp]: pairs of keys
  uint16_t* v_across = nullptr;       // [Dp][tile]
  uint32_t* prob_pairs = nullptr;     // [tile / 2][tile]: pairs of keys
  float *s = nullptr, *ot = nullptr;  // [key][query], [Dp][tile]

  FlashForwardTiles(int64_t Dp, Carver& c)
      : rows(c.take_as<uint16_t>(kFlashTile * Dp)),
        q_pairs(c.take_as<uint32_t>(kFlashTile * Dp / 2)),
        v_pairs(c.take_as<uint32_t>(kFlashTile * Dp / 2)),
        v_across(c.take_as<uint16_t>(kFlashTile * Dp)),
        prob_pairs(c.take_as<uint32_t>(kFlashTile * kFlashTile / 2)),
        s(c.take(kFlashTile * kFlashTile)),
        ot(c.take(kFlashTile * Dp)) {}
};

struct FlashBackwardTiles {
  uint16_t *q = nullptr, *g = nullptr, *k = nullptr, *v = nullptr;  // [tile][Dp] rows; g is dout
  uint32_t *q_pairs = nullptr, *g_pairs = nullptr;                  // [Dp / 2][tile]: pairs of channels
  uint32_t *q_down = nullptr, *g_down = nullptr;                    // [tile / 2][Dp]: pairs of queries
  uint32_t* k_pairs = nullptr;                                      // [tile / 2][Dp]: pairs of keys
  uint16_t* k_across = nullptr;                                     // [Dp][tile]
  uint16_t *prob = nullptr, *ds = nullptr;                          // [key][query] rows
  uint32_t* ds_pairs = nullptr;                                     // [tile / 2][query]: pairs of keys
  float *s = nullptr, *dp = nullptr, *dqt = nullptr;                // [key][query] twice, [Dp][tile]

  FlashBackwardTiles(int64_t Dp, Carver& c) {
    for (uint16_t** rows : {&q, &g, &k, &v, &k_across}) *rows = c.take_as<uint16_t>(kFlashTile * Dp);
    for (uint32_t** pairs : {&q_pairs, &g_pairs, &q_down, &g_down, &k_pairs})
      *pairs = c.take_as<uint32_t>(kFlashTile * Dp / 2);
    for (uint16_t** rows : {&prob, &ds}) *rows = c.take_as<uint16_t>(kFlashTile * kFlashTile);
    ds_pairs = c.take_as<uint32_t>(kFlashTile * kFlashTile / 2);
    for (float** tile : {&s, &dp}) *tile = c.take(kFlashTile * kFlashTile);
    dqt = c.take(kFlashTile * Dp);
  }
};

// The AMX kernels' scratch lies over the vector kernels': a tile is worked by one or the other. (A tile with
// NaN under the mask changes from one to the other before the first has written anything that counts.)
struct FlashForwardScratch {
  int64_t Dp;
  float *qt = nullptr, *ot = nullptr;                       // [Dp][tile]: queries along the lanes
  float *k = nullptr, *v = nullptr;                         // [tile][Dp]
  float* s = nullptr;                                       // [key][query]
  float *top = nullptr, *sum = nullptr, *shrink = nullptr;  // [tile]

  FlashForwardTiles amx;

  FlashForwardScratch(const AttentionProblem& p, Carver& c) : FlashForwardScratch(p, c, c) {}

 private:
  FlashForwardScratch(const AttentionProblem& p, Carver& c, Carver start)
      : Dp(padded_width(p)), amx(Dp, start) {
    for (float** tile : {&qt, &ot, &k, &v}) *tile = c.take(kFlashTile * Dp);
    s = c.take(kFlashTile * kFlashTile);
    if (p.dtype == DType::bf16) c.take_up_to(start.used());
    for (float** row : {&top, &sum, &shrink}) *row = c.take(kFlashTile);  // of either kind
  }
};

struct FlashBackwardScratch {
  int64_t Dp;
  float *q = nullptr, *g = nullptr;                    // [tile][Dp]: queries (scaled) and dout
  float *qt = nullptr, *gt = nullptr, *dqt = nullptr;  // [Dp][tile]
  float *k = nullptr, *v = nullptr;                    // [tile][Dp]
  float *s = nullptr, *dp = nullptr;                   // [key][query]
  float *lse = nullptr, *delta = nullptr;              // [tile]
  float *dk = nullptr, *dv = nullptr;  // [Tk up to whole tiles][Dp], summed over the group's heads

  FlashBackwardTiles amx;

  FlashBackwardScratch(const AttentionProblem& p, Carver& c) : FlashBackwardScratch(p, c, c) {}

 private:
  FlashBackwardScratch(const AttentionProblem& p, Carver& c, Carver start)
      : Dp(padded_width(p)), amx(Dp, start) {
    for (float** tile : {&q, &g, &qt, &gt, &dqt, &k, &v}) *tile = c.take(kFlashTile * Dp);
    for (float** tile : {&s, &dp}) *tile = c.take(kFlashTile * kFlashTile);
    if (p.dtype == DType::bf16) c.take_up_to(start.used());
    for (float** row : {&lse, &delta}) *row = c.take(kFlashTile);  // of either kind, and so are dk and dv
    for (float** whole : {&dk, &dv}) *whole = c.take((p.Tk + kFlashTile - 1) / kFlashTile * kFlashTile * Dp);
  }
};

template <class T>
struct FlashForwardTile {
  const AttentionProblem& p;
  FlashRows<T> q;     // from the tile's first query on
  FlashRows<T> k, v;  // from the first key on
  FlashRows<T> o;
  float* lse = nullptr;
  int64_t i0, rows;
  const FlashForwardScratch& scratch;
};

template <class T>
struct FlashBackwardTile {
  const AttentionProblem& p;
  FlashRows<T> q, o, dout, dq;
  bool dq_wanted, dq_add;
  FlashRows<T> k, v;
  const float* lse;
  float *dk = nullptr, *dv = nullptr;
  int64_t i0, rows;
  const FlashBackwardScratch& scratch;
};

// A tile of keys as the query tile at i0 sees it: query i takes part with key j where i >= j - shift.
struct FlashKeyTile {
  int64_t keys;
  int64_t shift;
  bool diagonal;  // some query does not see some key

  FlashKeyTile(const AttentionProblem& p, int64_t i0, int64_t j0)
      : keys(std::min(kFlashTile, p.Tk - j0)),
        shift(i0 + p.Tk - p.Tq - j0),
        diagonal(p.causal && shift < keys - 1) {}
};

}  // namespace kiln
