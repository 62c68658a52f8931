// Flash attention's tiles with the five matmuls on AMX, for bf16. The order of work and the [key][query]
// layout are those of cpu_flash_simd.h; what is multiplied is rounded to bf16 first (probabilities and dS
// too), sums stay in fp32. A matmul cannot skip masked places, it multiplies them by an exact 0: so a
// query tile whose diagonal holds a NaN or an infinity, which 0 would not silence, goes to the vector kernels
// instead.

static inline uint32_t* as_pairs(uint16_t* rows) { return reinterpret_cast<uint32_t*>(rows); }

// rows x D values to [tile][Dp], with zeros around.
static void copy_rows(FlashRows<bf16> from, int64_t rows, int64_t D, int64_t Dp, uint16_t* to) {
  for (int64_t i = 0; i < rows; ++i) {
    const bf16* row = from.base + i * from.stride;
    for (int64_t c = 0; c < Dp; c += 32) {
      const int64_t left = D - c < 0 ? 0 : D - c;
      const __mmask32 there = left >= 32 ? 0xffffffffu : (1u << left) - 1;
      _mm512_storeu_si512(to + i * Dp + c, _mm512_maskz_loadu_epi16(there, row + c));
    }
  }
  std::memset(to + rows * Dp, 0, static_cast<std::size_t>((kFlashTile - rows) * Dp) * 2);
}

// to[c][i] = from[i][c], 32 bits each; rows and columns are multiples of 16.
static void transpose_pairs(const uint32_t* from, int64_t rows, int64_t columns, uint32_t* to) {
  for (int64_t i = 0; i < rows; i += 16) {
    for (int64_t c = 0; c < columns; c += 16) {
      F32 block[16];
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r)
        block[r] = {_mm512_castsi512_ps(_mm512_loadu_si512(from + (i + r) * columns + c))};
      transpose_square(block);
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r)
        _mm512_storeu_si512(to + (c + r) * rows + i, _mm512_castps_si512(block[r].v));
    }
  }
}

// to[i / 2][c] = rows i and i + 1 side by side.
static void pair_rows(const uint16_t* from, int64_t columns, uint32_t* to) {
  for (int64_t i = 0; i < kFlashTile; i += 2) {
    for (int64_t c = 0; c < columns; c += 16) {
      const auto* upper = reinterpret_cast<const __m256i*>(from + i * columns + c);
      const auto* lower = reinterpret_cast<const __m256i*>(from + (i + 1) * columns + c);
      const __m512i first = _mm512_cvtepu16_epi32(_mm256_loadu_si256(upper));
      const __m512i second = _mm512_cvtepu16_epi32(_mm256_loadu_si256(lower));
      _mm512_storeu_si512(to + i / 2 * columns + c, _mm512_or_si512(first, _mm512_slli_epi32(second, 16)));
    }
  }
}

static inline __m512i pair_up(F32 first, F32 second) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(to_bf16(first)),
                         _mm512_slli_epi32(_mm512_cvtepu16_epi32(to_bf16(second)), 16));
}

static bool all_finite(FlashRows<bf16> from, int64_t rows, int64_t D) {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  __mmask32 bad = 0;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t c = 0; c < D; c += 32) {
      const int64_t left = D - c;
      const __mmask32 there = left >= 32 ? 0xffffffffu : (1u << left) - 1;
      const __m512i x = _mm512_maskz_loadu_epi16(there, from.base + i * from.stride + c);
      bad |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(x, exponent), exponent);
    }
  }
  return bad == 0;
}

// The first key that some query of the tile does not see: matmuls over keys from its tile on are masked.
static int64_t first_diagonal_key(const AttentionProblem& p, int64_t i0) {
  const int64_t key = p.causal ? i0 + p.Tk - p.Tq + 1 : p.Tk;
  return key < 0 ? 0 : key / kFlashTile * kFlashTile;
}

static bool diagonal_is_finite(const AttentionProblem& p, FlashRows<bf16> k, FlashRows<bf16> v, int64_t i0,
                               int64_t limit) {
  const int64_t first = first_diagonal_key(p, i0);
  const int64_t end = (limit + kFlashTile - 1) / kFlashTile * kFlashTile;
  const int64_t keys = (end < p.Tk ? end : p.Tk) - first;
  return keys <= 0 || (all_finite(k.from(first), keys, p.D) && all_finite(v.from(first), keys, p.D));
}

// As online_softmax, from raw scores; the probabilities come out as pairs of keys.
static void online_softmax_pairs(float* s, int64_t keys, float scale, float* top, float* sum, float* shrink,
                                 uint32_t* pairs) {
  const F32 k = broadcast(scale);
  for (int64_t i = 0; i < kFlashTile; i += 16) {
    const F32 before = load(top + i);
    F32 now = before;
    for (int64_t j = 0; j < keys; ++j) {
      const F32 x = load(s + j * kFlashTile + i) * k;
      store(s + j * kFlashTile + i, x);
      now = max(x, now);
    }
    F32 even = zero_vector(), odd = zero_vector();
    for (int64_t j = 0; j < kFlashTile; j += 2) {
      const F32 a = j < keys ? exp(load(s + j * kFlashTile + i) - now) : zero_vector();
      const F32 b = j + 1 < keys ? exp(load(s + (j + 1) * kFlashTile + i) - now) : zero_vector();
      even = even + a;
      odd = odd + b;
      _mm512_storeu_si512(pairs + j / 2 * kFlashTile + i, pair_up(a, b));
    }
    const F32 factor = exp(before - now);
    store(top + i, now);
    store(shrink + i, factor);
    store(sum + i, fma(load(sum + i), factor, even + odd));
  }
}

static void forward_tile_amx(const FlashForwardTile<bf16>& t) {
  const AttentionProblem& p = t.p;
  const FlashForwardScratch& w = t.scratch;
  const FlashForwardTiles& a = w.amx;
  const int64_t Dp = w.Dp, limit = p.visible(t.i0 + t.rows - 1);
  if (!(p.scale > 0) || !diagonal_is_finite(p, t.k, t.v, t.i0, limit)) {
    forward_tile(t);
    return;
  }
  amx_enter();
  copy_rows(t.q, t.rows, p.D, Dp, a.rows);
  transpose_pairs(as_pairs(a.rows), kFlashTile, Dp / 2, a.q_pairs);
  std::memset(a.ot, 0, static_cast<std::size_t>(Dp * kFlashTile) * sizeof(float));
  for (int64_t i = 0; i < kFlashTile; ++i) {
    w.top[i] = kFlashLowest;
    w.sum[i] = 0;
  }
  for (int64_t j0 = 0; j0 < limit; j0 += kFlashTile) {
    const auto [keys, shift, diagonal] = FlashKeyTile(p, t.i0, j0);
    copy_rows(t.k.from(j0), keys, p.D, Dp, a.rows);
    amx_product({kFlashTile, kFlashTile, Dp, a.rows, Dp, a.q_pairs, kFlashTile, a.s, kFlashTile, false});
    if (diagonal) fill_masked(a.s, keys, kFlashTile, shift, -INFINITY);
    online_softmax_pairs(a.s, keys, p.scale, w.top, w.sum, w.shrink, a.prob_pairs);
    copy_rows(t.v.from(j0), keys, p.D, Dp, a.rows);
    pair_rows(a.rows, Dp, a.v_pairs);
    transpose_pairs(a.v_pairs, kFlashTile / 2, Dp, as_pairs(a.v_across));
    for (int64_t c = 0; c < p.D; ++c) {
      float* o = a.ot + c * kFlashTile;
      for (int64_t i = 0; i < kFlashTile; i += 16) store(o + i, load(o + i) * load(w.shrink + i));
    }
    amx_product({Dp, kFlashTile, kFlashTile, a.v_across, kFlashTile, a.prob_pairs, kFlashTile, a.ot,
                 kFlashTile, true});
  }
  amx_leave();
  finish_forward(t, a.ot);
}

// P and scale * dS from raw scores: as rows for the matmuls over queries, dS also as pairs of keys.
static void softmax_gradient_rows(const FlashBackwardTile<bf16>& t, int64_t keys, bool diagonal,
                                  int64_t shift) {
  const FlashBackwardScratch& w = t.scratch;
  const FlashBackwardTiles& a = w.amx;
  const F32 k = broadcast(t.p.scale);
  for (int64_t i = 0; i < kFlashTile; i += 16) {
    const F32 l = load(w.lse + i), d = load(w.delta + i);
    for (int64_t j = 0; j < keys; ++j) {
      const int64_t at = j * kFlashTile + i;
      const F32 prob = exp(load(a.s + at) * k - l);
      store(a.s + at, prob);
      store(a.dp + at, prob * (load(a.dp + at) - d) * k);
    }
  }
  if (diagonal) {
    fill_masked(a.s, keys, kFlashTile, shift, 0);
    fill_masked(a.dp, keys, kFlashTile, shift, 0);
  }
  // Queries past the last one: their zeros were multiplied by every key, and 0 * Inf is NaN.
  for (int64_t j = 0; t.rows < kFlashTile && j < keys; ++j) {
    const auto lanes = static_cast<std::size_t>(kFlashTile - t.rows) * sizeof(float);
    std::memset(a.s + j * kFlashTile + t.rows, 0, lanes);
    std::memset(a.dp + j * kFlashTile + t.rows, 0, lanes);
  }
  const auto past = static_cast<std::size_t>((kFlashTile - keys) * kFlashTile) * sizeof(float);
  std::memset(a.s + keys * kFlashTile, 0, past);
  std::memset(a.dp + keys * kFlashTile, 0, past);
  for (int64_t at = 0; at < kFlashTile * kFlashTile; at += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(a.prob + at), to_bf16(load(a.s + at)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(a.ds + at), to_bf16(load(a.dp + at)));
  }
  pair_rows(a.ds, kFlashTile, a.ds_pairs);
}

static void backward_tile_amx(const FlashBackwardTile<bf16>& t) {
  const AttentionProblem& p = t.p;
  const FlashBackwardScratch& w = t.scratch;
  const FlashBackwardTiles& a = w.amx;
  const int64_t Dp = w.Dp, limit = p.visible(t.i0 + t.rows - 1);
  const bool masked = p.causal && first_diagonal_key(p, t.i0) < limit;
  if (!(p.scale > 0) || !diagonal_is_finite(p, t.k, t.v, t.i0, limit) ||
      (masked && !(all_finite(t.q, t.rows, p.D) && all_finite(t.dout, t.rows, p.D)))) {
    backward_tile(t);
    return;
  }
  amx_enter();
  copy_rows(t.q, t.rows, p.D, Dp, a.q);
  copy_rows(t.dout, t.rows, p.D, Dp, a.g);
  transpose_pairs(as_pairs(a.q), kFlashTile, Dp / 2, a.q_pairs);
  transpose_pairs(as_pairs(a.g), kFlashTile, Dp / 2, a.g_pairs);
  pair_rows(a.q, Dp, a.q_down);
  pair_rows(a.g, Dp, a.g_down);
  for (int64_t i = 0; i < kFlashTile; ++i) {
    const bool there = i < t.rows;
    const bf16 *o = t.o.base + i * t.o.stride, *g = t.dout.base + i * t.dout.stride;
    w.lse[i] = there ? t.lse[i] : 0;
    w.delta[i] =
        there ? sum_over(p.D, [&](int64_t c, int n) { return load_some(o + c, n) * load_some(g + c, n); })
              : 0;
  }
  std::memset(a.dqt, 0, static_cast<std::size_t>(Dp * kFlashTile) * sizeof(float));
  for (int64_t j0 = 0; j0 < limit; j0 += kFlashTile) {
    const auto [keys, shift, diagonal] = FlashKeyTile(p, t.i0, j0);
    copy_rows(t.k.from(j0), keys, p.D, Dp, a.k);
    copy_rows(t.v.from(j0), keys, p.D, Dp, a.v);
    amx_product({kFlashTile, kFlashTile, Dp, a.k, Dp, a.q_pairs, kFlashTile, a.s, kFlashTile, false});
    amx_product({kFlashTile, kFlashTile, Dp, a.v, Dp, a.g_pairs, kFlashTile, a.dp, kFlashTile, false});
    softmax_gradient_rows(t, keys, diagonal, shift);
    if (t.dq_wanted) {
      pair_rows(a.k, Dp, a.k_pairs);
      transpose_pairs(a.k_pairs, kFlashTile / 2, Dp, as_pairs(a.k_across));
      amx_product({Dp, kFlashTile, kFlashTile, a.k_across, kFlashTile, a.ds_pairs, kFlashTile, a.dqt,
                   kFlashTile, true});
    }
    amx_product({kFlashTile, Dp, kFlashTile, a.prob, kFlashTile, a.g_down, Dp, t.dv + j0 * Dp, Dp, true});
    amx_product({kFlashTile, Dp, kFlashTile, a.ds, kFlashTile, a.q_down, Dp, t.dk + j0 * Dp, Dp, true});
  }
  amx_leave();
  if (!t.dq_wanted) return;
  auto* rows = reinterpret_cast<float*>(a.q);  // q and g, side by side, are done with: [tile][Dp] fp32
  transpose(a.dqt, Dp, kFlashTile, kFlashTile, Dp, rows);
  store_tile(rows, t.rows, p.D, Dp, 1, t.dq_add, t.dq);
}
