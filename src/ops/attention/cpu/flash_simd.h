// Flash attention's tiles on F32 vectors. Queries lie along the lanes: scores stand as S^T[key][query], so
// the softmax runs down columns without a single sum across lanes, keys and values are read as they are in
// memory, and only a query tile's q, o and gradients are ever transposed.

// Lanes from `first` on are a's, the ones before are b's.
static inline F32 select_from(int64_t first, F32 a, F32 b) {
#if KILN_SIMD_LEVEL == 2
  const uint32_t lanes = first >= 16 ? 0u : 0xffffu << (first < 0 ? 0 : first);
  return {_mm512_mask_blend_ps(static_cast<__mmask16>(lanes), b.v, a.v)};
#elif KILN_SIMD_LEVEL == 1
  const int f = first > 8 ? 8 : first < 0 ? 0 : static_cast<int>(first);
  const __m256i lanes =
      _mm256_cmpgt_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(f - 1));
  return {_mm256_blendv_ps(b.v, a.v, _mm256_castsi256_ps(lanes))};
#else
  return lanes([&](int i) { return i >= first ? a.v[i] : b.v[i]; });
#endif
}

// What a diagonal tile leaves out: query i takes part with key j where i >= j - shift. A masked factor must
// not be multiplied by 0, since it may be NaN; it is not touched.
enum class Mask {
  none,
  lanes,  // the inner index is the key, the query is the lane
  steps,  // the row is the key, the query is the inner index
};

struct Product {
  int64_t M, N, K;  // M a multiple of kBlockRows, N of kBlockLanes or of one vector
  const float* a;   // A(m, k) = a[m * a_row + k * a_col]; one of the two is 1
  int64_t a_row, a_col;
  const float* b;  // [K][b_row]
  int64_t b_row;
  float* c;  // [M][c_row]
  int64_t c_row;
};

// 16 sums in registers with AVX-512 (of 32), 8 otherwise (of 16): as many as hide an fma's latency.
static constexpr int kBlockRows = KILN_SIMD_LEVEL == 2 ? 8 : 4;
static constexpr int kBlockVectors = 2;
static constexpr int kBlockLanes = kBlockVectors * F32::kWidth;

template <Mask kMask, int kVectors, bool kAdd>
static inline void product_block(const Product& p, int64_t m, int64_t n, int64_t shift) {
  F32 sum[kBlockRows][kVectors];
  for (int r = 0; r < kBlockRows; ++r) {
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = kAdd ? load(p.c + (m + r) * p.c_row + n + v * F32::kWidth) : zero_vector();
  }
  const float* a = p.a + m * p.a_row;
  const float* b = p.b + n;
  auto plain = [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      F32 right[kVectors];
      for (int v = 0; v < kVectors; ++v) right[v] = load(b + k * p.b_row + v * F32::kWidth);
      for (int r = 0; r < kBlockRows; ++r) {
        const F32 left = broadcast(a[r * p.a_row + k * p.a_col]);
        for (int v = 0; v < kVectors; ++v) sum[r][v] = fma(left, right[v], sum[r][v]);
      }
    }
  };
  if constexpr (kMask == Mask::none) plain(0, p.K);
  if constexpr (kMask == Mask::lanes) {
    const int64_t seen_by_all = shift + n + 1;  // keys before this one
    const int64_t whole = seen_by_all < 0 ? 0 : seen_by_all > p.K ? p.K : seen_by_all;
    plain(0, whole);
    for (int64_t k = whole; k < p.K && k - shift - n < kVectors * F32::kWidth; ++k) {
      for (int v = 0; v < kVectors; ++v) {
        const int64_t first = k - shift - n - v * F32::kWidth;
        const F32 right = load(b + k * p.b_row + v * F32::kWidth);
        for (int r = 0; r < kBlockRows; ++r) {
          const F32 left = broadcast(a[r * p.a_row + k * p.a_col]);
          sum[r][v] = select_from(first, fma(left, right, sum[r][v]), sum[r][v]);
        }
      }
    }
  }
  if constexpr (kMask == Mask::steps) {
    int64_t k = m - shift < 0 ? 0 : m - shift;
    for (; k < p.K && k < m + kBlockRows - 1 - shift; ++k) {  // some rows of the block begin later
      for (int r = 0; r < kBlockRows && m + r - shift <= k; ++r) {
        const F32 left = broadcast(a[r * p.a_row + k * p.a_col]);
        for (int v = 0; v < kVectors; ++v)
          sum[r][v] = fma(left, load(b + k * p.b_row + v * F32::kWidth), sum[r][v]);
      }
    }
    plain(k, p.K);
  }
  for (int r = 0; r < kBlockRows; ++r) {
    for (int v = 0; v < kVectors; ++v) store(p.c + (m + r) * p.c_row + n + v * F32::kWidth, sum[r][v]);
  }
}

// C (=|+=) A B. A panel of B stays in the first cache while all rows of A pass by.
template <Mask kMask, bool kAdd>
static void multiply(const Product& p, int64_t shift = 0) {
  int64_t n = 0;
  for (; n + kBlockLanes <= p.N; n += kBlockLanes) {
    for (int64_t m = 0; m < p.M; m += kBlockRows) product_block<kMask, kBlockVectors, kAdd>(p, m, n, shift);
  }
  for (; n < p.N; n += F32::kWidth) {
    for (int64_t m = 0; m < p.M; m += kBlockRows) product_block<kMask, 1, kAdd>(p, m, n, shift);
  }
}

static void multiply_add(const Product& p, bool diagonal, Mask mask, int64_t shift) {
  if (!diagonal) {
    multiply<Mask::none, true>(p);
  } else if (mask == Mask::lanes) {
    multiply<Mask::lanes, true>(p, shift);
  } else {
    multiply<Mask::steps, true>(p, shift);
  }
}

// rows x D elements to fp32, times `scale`, with zeros up to `padded_rows` x Dp.
template <class T>
static void load_tile(FlashRows<T> from, int64_t rows, int64_t padded_rows, int64_t D, int64_t Dp,
                      float scale, float* to) {
  for (int64_t i = 0; i < rows; ++i) {
    const T* row = from.base + i * from.stride;
    for_vectors(D, [&](int64_t c, int n) {
      store(to + i * Dp + c, load_some(row + c, n) * broadcast(scale));  // a partial load's rest is zero
    });
    for (int64_t c = (D + F32::kWidth - 1) / F32::kWidth * F32::kWidth; c < Dp; ++c) to[i * Dp + c] = 0;
  }
  for (int64_t i = rows * Dp; i < padded_rows * Dp; ++i) to[i] = 0;
}

// to[i][c] = (add ? to[i][c] : 0) + from[i][c] * scale
template <class T>
static void store_tile(const float* from, int64_t rows, int64_t D, int64_t Dp, float scale, bool add,
                       FlashRows<T> to) {
  for (int64_t i = 0; i < rows; ++i) {
    T* row = to.base + i * to.stride;
    for_vectors(D, [&](int64_t c, int n) {
      F32 x = load(from + i * Dp + c) * broadcast(scale);
      if (add) x = x + load_some(row + c, n);
      store_some(row + c, x, n);
    });
  }
}

static void transpose(const float* from, int64_t rows, int64_t columns, int64_t from_row, int64_t to_row,
                      float* to) {
  for (int64_t c0 = 0; c0 < columns; c0 += 16) {  // a cache line of each row at a time
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t c = c0; c < c0 + 16; ++c) to[c * to_row + i] = from[i * from_row + c];
    }
  }
}

// The keys of a tile that lane i does not see are a prefix of lanes in each key's row.
static void fill_masked(float* s, int64_t keys, int64_t lanes, int64_t shift, float value) {
  for (int64_t j = 0; j < keys; ++j) {
    const int64_t masked = j - shift < lanes ? j - shift : lanes;
    for (int64_t i = 0; i < masked; ++i) s[j * kFlashTile + i] = value;
  }
}

// Turns a tile of scores into exp(score - top) under a running maximum; `shrink` is what sums made under the
// old maximum must be multiplied by. A NaN score does not win the maximum, but its exponential is NaN.
static void online_softmax(float* s, int64_t keys, int64_t lanes, float* top, float* sum, float* shrink) {
  for (int64_t i = 0; i < lanes; i += F32::kWidth) {
    const F32 before = load(top + i);
    F32 now = before;
    for (int64_t j = 0; j < keys; ++j) now = max(load(s + j * kFlashTile + i), now);
    F32 part = zero_vector();
    for (int64_t j = 0; j < keys; ++j) {
      const F32 e = exp(load(s + j * kFlashTile + i) - now);
      store(s + j * kFlashTile + i, e);
      part = part + e;
    }
    const F32 factor = exp(before - now);
    store(top + i, now);
    store(shrink + i, factor);
    store(sum + i, fma(load(sum + i), factor, part));
  }
}

// Keys of the tile at j0, padded to whole blocks of rows.
static inline int64_t padded_keys(int64_t keys) { return (keys + kBlockRows - 1) / kBlockRows * kBlockRows; }

static inline int64_t padded_lanes(int64_t rows) {
  return (rows + kBlockLanes - 1) / kBlockLanes * kBlockLanes;
}

// o = ot / sum, turned back into rows, and the logarithm of the sum. Takes the place of qt.
template <class T>
static void finish_forward(const FlashForwardTile<T>& t, float* ot) {
  const AttentionProblem& p = t.p;
  const FlashForwardScratch& w = t.scratch;
  for (int64_t i = 0; i < kFlashTile; ++i) {
    const bool sees = i < t.rows && p.visible(t.i0 + i) > 0;
    if (i < t.rows) t.lse[i] = sees ? w.top[i] + std::log(w.sum[i]) : -INFINITY;
    if (!sees) w.sum[i] = 1;  // its o is 0
  }
  for (int64_t c = 0; c < p.D; ++c) {
    float* o = ot + c * kFlashTile;
    for (int64_t i = 0; i < kFlashTile; i += F32::kWidth) store(o + i, load(o + i) / load(w.sum + i));
  }
  transpose(ot, w.Dp, kFlashTile, kFlashTile, w.Dp, w.qt);
  store_tile(w.qt, t.rows, p.D, w.Dp, 1, false, t.o);
}

// One query tile of one head against all keys it sees.
template <class T>
static void forward_tile(const FlashForwardTile<T>& t) {
  const AttentionProblem& p = t.p;
  const FlashForwardScratch& w = t.scratch;
  const int64_t Dp = w.Dp, rows = t.rows, lanes = padded_lanes(rows);
  load_tile(t.q, rows, kFlashTile, p.D, Dp, p.scale, w.k);
  transpose(w.k, kFlashTile, Dp, Dp, kFlashTile, w.qt);
  for (int64_t i = 0; i < Dp * kFlashTile; ++i) w.ot[i] = 0;
  for (int64_t i = 0; i < kFlashTile; ++i) {
    w.top[i] = kFlashLowest;
    w.sum[i] = 0;
  }
  const int64_t limit = p.visible(t.i0 + rows - 1);
  for (int64_t j0 = 0; j0 < limit; j0 += kFlashTile) {
    const auto [keys, shift, diagonal] = FlashKeyTile(p, t.i0, j0);
    const int64_t padded = padded_keys(keys);
    load_tile(t.k.from(j0), keys, padded, p.D, Dp, 1, w.k);
    load_tile(t.v.from(j0), keys, padded, p.D, Dp, 1, w.v);
    multiply<Mask::none, false>({padded, lanes, p.D, w.k, Dp, 1, w.qt, kFlashTile, w.s, kFlashTile});
    if (diagonal) fill_masked(w.s, keys, lanes, shift, -INFINITY);
    online_softmax(w.s, keys, lanes, w.top, w.sum, w.shrink);
    for (int64_t c = 0; c < p.D; ++c) {
      float* o = w.ot + c * kFlashTile;
      for (int64_t i = 0; i < lanes; i += F32::kWidth) store(o + i, load(o + i) * load(w.shrink + i));
    }
    multiply_add({Dp, lanes, keys, w.v, 1, Dp, w.s, kFlashTile, w.ot, kFlashTile}, diagonal, Mask::lanes,
                 shift);
  }
  finish_forward(t, w.ot);
}

// P from the saved logarithm of the sum, and dS = P (dP - D), both in place.
static void softmax_gradient(float* s, float* dp, int64_t keys, int64_t lanes, const float* lse,
                             const float* delta) {
  for (int64_t i = 0; i < lanes; i += F32::kWidth) {
    const F32 l = load(lse + i), d = load(delta + i);
    for (int64_t j = 0; j < keys; ++j) {
      const F32 prob = exp(load(s + j * kFlashTile + i) - l);
      store(s + j * kFlashTile + i, prob);
      store(dp + j * kFlashTile + i, prob * (load(dp + j * kFlashTile + i) - d));
    }
  }
}

// One query tile of one head: writes its dq and adds to the dk and dv of all keys it sees.
template <class T>
static void backward_tile(const FlashBackwardTile<T>& t) {
  const AttentionProblem& p = t.p;
  const FlashBackwardScratch& w = t.scratch;
  const int64_t Dp = w.Dp, rows = t.rows, lanes = padded_lanes(rows);
  load_tile(t.q, rows, kFlashTile, p.D, Dp, p.scale, w.q);
  transpose(w.q, kFlashTile, Dp, Dp, kFlashTile, w.qt);
  load_tile(t.dout, rows, kFlashTile, p.D, Dp, 1, w.g);
  transpose(w.g, kFlashTile, Dp, Dp, kFlashTile, w.gt);
  // D = rowsum(o * dout), summed in the order dP is: a query that sees one key then gets dP - D = 0 exactly.
  load_tile(t.o, rows, kFlashTile, p.D, Dp, 1, w.k);
  transpose(w.k, kFlashTile, Dp, Dp, kFlashTile, w.dqt);
  for (int64_t i = 0; i < kFlashTile; i += F32::kWidth) {
    F32 inner = zero_vector();
    for (int64_t c = 0; c < p.D; ++c)
      inner = fma(load(w.dqt + c * kFlashTile + i), load(w.gt + c * kFlashTile + i), inner);
    store(w.delta + i, inner);
  }
  for (int64_t i = 0; i < kFlashTile; ++i) w.lse[i] = i < rows ? t.lse[i] : 0;
  for (int64_t i = 0; i < Dp * kFlashTile; ++i) w.dqt[i] = 0;

  const int64_t limit = p.visible(t.i0 + rows - 1);
  for (int64_t j0 = 0; j0 < limit; j0 += kFlashTile) {
    const auto [keys, shift, diagonal] = FlashKeyTile(p, t.i0, j0);
    const int64_t padded = padded_keys(keys);
    load_tile(t.k.from(j0), keys, padded, p.D, Dp, 1, w.k);
    load_tile(t.v.from(j0), keys, padded, p.D, Dp, 1, w.v);
    multiply<Mask::none, false>({padded, lanes, p.D, w.k, Dp, 1, w.qt, kFlashTile, w.s, kFlashTile});
    multiply<Mask::none, false>({padded, lanes, p.D, w.v, Dp, 1, w.gt, kFlashTile, w.dp, kFlashTile});
    softmax_gradient(w.s, w.dp, padded, lanes, w.lse, w.delta);
    multiply_add({Dp, lanes, keys, w.k, 1, Dp, w.dp, kFlashTile, w.dqt, kFlashTile}, diagonal, Mask::lanes,
                 shift);
    multiply_add({padded, Dp, rows, w.s, kFlashTile, 1, w.g, Dp, t.dv + j0 * Dp, Dp}, diagonal, Mask::steps,
                 shift);
    multiply_add({padded, Dp, rows, w.dp, kFlashTile, 1, w.q, Dp, t.dk + j0 * Dp, Dp}, diagonal, Mask::steps,
                 shift);
  }
  if (!t.dq_wanted) return;
  transpose(w.dqt, Dp, kFlashTile, kFlashTile, Dp, w.k);
  store_tile(w.k, rows, p.D, Dp, p.scale, t.dq_add, t.dq);
}

template <class T>
static void store_gradient(const float* from, int64_t rows, int64_t D, int64_t Dp, bool add,
                           FlashRows<T> to) {
  store_tile(from, rows, D, Dp, 1, add, to);
}

#if KILN_SIMD_LEVEL == 2
#include "ops/attention/cpu/flash_amx_simd.h"
#endif
