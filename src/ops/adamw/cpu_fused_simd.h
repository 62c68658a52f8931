// AdamW on F32 vectors. Weights are one array, or the two halves of a split fp32.

template <class T>
static inline F32 load_weights(const PlainWeights<T>& w, int64_t at, int n) {
  return load_some(w.value + at, n);
}
template <class T>
static inline void store_weights(const PlainWeights<T>& w, int64_t at, F32 x, int n) {
  store_some(w.value + at, x, n);
}

// The vector forms of join_float and split_float (base/half.h): the same bits.
static inline F32 join_halves(const bf16* high, const int16_t* low) {
#if KILN_SIMD_LEVEL == 2
  const __m512i h = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(high)));
  const __m512i l = _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(low)));
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(h, 16), l))};
#elif KILN_SIMD_LEVEL == 1
  const __m256i h = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(high)));
  const __m256i l = _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low)));
  return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(h, 16), l))};
#else
  return lanes([&](int i) { return join_float(high[i], low[i]); });
#endif
}

static inline void split_halves(F32 x, bf16* high, int16_t* low) {
#if KILN_SIMD_LEVEL == 2
  const __m512i u = _mm512_castps_si512(x.v);
  const __mmask16 nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  const __m512i rounded = _mm512_add_epi32(u, _mm512_set1_epi32(0x8000));
  const __m512i h = _mm512_mask_or_epi32(rounded, nan, u, _mm512_set1_epi32(0x400000));
  const __m512i l = _mm512_mask_set1_epi32(u, nan, 0);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(high), _mm512_cvtepi32_epi16(_mm512_srli_epi32(h, 16)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(low), _mm512_cvtepi32_epi16(l));
#elif KILN_SIMD_LEVEL == 1
  const __m256i u = _mm256_castps_si256(x.v);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q));
  const __m256i rounded = _mm256_add_epi32(u, _mm256_set1_epi32(0x8000));
  const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  const __m256i h = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  const __m256i l = _mm256_and_si256(_mm256_andnot_si256(nan, u), _mm256_set1_epi32(0xffff));
  const __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(h, l), 0xd8);  // h in the low half
  _mm_storeu_si128(reinterpret_cast<__m128i*>(high), _mm256_castsi256_si128(both));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(low), _mm256_extracti128_si256(both, 1));
#else
  for (int i = 0; i < F32::kWidth; ++i) {
    const SplitFloat s = split_float(x.v[i]);
    high[i] = s.high;
    low[i] = s.low;
  }
#endif
}

static inline F32 load_weights(const SplitWeights& w, int64_t at, int n) {
  if (n == F32::kWidth) return join_halves(w.high + at, w.low + at);
  bf16 high[F32::kWidth] = {};
  int16_t low[F32::kWidth] = {};
  std::memcpy(high, w.high + at, static_cast<std::size_t>(n) * sizeof(bf16));
  std::memcpy(low, w.low + at, static_cast<std::size_t>(n) * sizeof(int16_t));
  return join_halves(high, low);
}

static inline void store_weights(const SplitWeights& w, int64_t at, F32 x, int n) {
  if (n == F32::kWidth) {
    split_halves(x, w.high + at, w.low + at);
    return;
  }
  bf16 high[F32::kWidth];
  int16_t low[F32::kWidth];
  split_halves(x, high, low);
  std::memcpy(w.high + at, high, static_cast<std::size_t>(n) * sizeof(bf16));
  std::memcpy(w.low + at, low, static_cast<std::size_t>(n) * sizeof(int16_t));
}

// Elements [begin, end), which decay at one rate.
template <class Weights, class G, class M>
static void update_range(const AdamWRange<Weights, G, M>& r, float decay, int64_t begin, int64_t end) {
  const AdamWStep<float>& s = r.step;
  const F32 factor = broadcast(s.factor), eps = broadcast(s.eps), rate = broadcast(s.lr);
  const F32 beta1 = broadcast(s.beta1), rest1 = broadcast(1 - s.beta1),
            unbias1 = broadcast(1 / s.correction1);
  const F32 beta2 = broadcast(s.beta2), rest2 = broadcast(1 - s.beta2),
            unbias2 = broadcast(1 / s.correction2);
  const F32 shrink = broadcast(decay);
  for_vectors(end - begin, [&](int64_t i, int n) {
    const int64_t at = begin + i;
    const F32 w = load_weights(r.weights, at, n), g = load_some(r.grad + at, n) * factor;
    const F32 m = fma(beta1, load_some(r.m + at, n), rest1 * g);
    const F32 v = fma(beta2, load_some(r.v + at, n), rest2 * g * g);
    store_some(r.m + at, m, n);
    store_some(r.v + at, v, n);
    const F32 step = fma(shrink, w, m * unbias1 / (sqrt(v * unbias2) + eps));
    store_weights(r.weights, at, w - rate * step, n);
  });
}
