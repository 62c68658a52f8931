// F32: a vector of floats as wide as the level allows, with loads and stores that convert from and to bf16
// and fp16. Included once per level inside a namespace (simd_each.h), so there is no include guard and no
// #include here. `partial` forms touch only the first n elements; the rest read as zero and are not written.
// static: these must stay private to each translation unit and level.

#if KILN_SIMD_LEVEL == 2

struct F32 {
  static constexpr int kWidth = 16;
  __m512 v;
};
static inline F32 broadcast(float x) { return {_mm512_set1_ps(x)}; }
static inline F32 operator+(F32 a, F32 b) { return {_mm512_add_ps(a.v, b.v)}; }
static inline F32 operator-(F32 a, F32 b) { return {_mm512_sub_ps(a.v, b.v)}; }
static inline F32 operator*(F32 a, F32 b) { return {_mm512_mul_ps(a.v, b.v)}; }
static inline F32 operator/(F32 a, F32 b) { return {_mm512_div_ps(a.v, b.v)}; }
static inline F32 fma(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
static inline F32 max(F32 a, F32 b) { return {_mm512_max_ps(a.v, b.v)}; }
static inline F32 min(F32 a, F32 b) { return {_mm512_min_ps(a.v, b.v)}; }
static inline F32 sqrt(F32 a) { return {_mm512_sqrt_ps(a.v)}; }
// x where a < b (a == b), else y; y where either is NaN.
static inline F32 where_less(F32 a, F32 b, F32 x, F32 y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}
static inline F32 where_equal(F32 a, F32 b, F32 x, F32 y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ), y.v, x.v)};
}
static inline F32 round_nearest(F32 a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// a * 2^n for whole n in [-252, 252]
static inline F32 scale_exponent(F32 a, F32 n) { return {_mm512_scalef_ps(a.v, n.v)}; }
static inline __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1); }
// The first n lanes, zero in the others.
static inline F32 keep_first(F32 a, int n) { return {_mm512_maskz_mov_ps(first_lanes(n), a.v)}; }

static inline F32 load(const float* p) { return {_mm512_loadu_ps(p)}; }
static inline F32 load(const bf16* p) {
  const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))};
}
static inline F32 load(const fp16* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
static inline F32 load_partial(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
static inline F32 load_partial(const bf16* p, int n) {
  const __m256i h = _mm256_maskz_loadu_epi16(first_lanes(n), p);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))};
}
static inline F32 load_partial(const fp16* p, int n) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p))};
}
// Round to nearest even; NaN stays NaN.
static inline __m256i to_bf16(F32 a) {
  const __m512i u = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  const __m512i kept = _mm512_mask_or_epi32(rounded, nan, u, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16));
}
static inline void store(float* p, F32 a) { _mm512_storeu_ps(p, a.v); }
static inline void store(bf16* p, F32 a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_bf16(a)); }
static inline void store(fp16* p, F32 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
static inline void store_partial(float* p, F32 a, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }
static inline void store_partial(bf16* p, F32 a, int n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), to_bf16(a));
}
static inline void store_partial(fp16* p, F32 a, int n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
// Lane sums and maxima in a fixed tree.
static inline float sum(F32 a) { return _mm512_reduce_add_ps(a.v); }
static inline float top(F32 a) { return _mm512_reduce_max_ps(a.v); }

#elif KILN_SIMD_LEVEL == 1

struct F32 {
  static constexpr int kWidth = 8;
  __m256 v;
};
static inline F32 broadcast(float x) { return {_mm256_set1_ps(x)}; }
static inline F32 operator+(F32 a, F32 b) { return {_mm256_add_ps(a.v, b.v)}; }
static inline F32 operator-(F32 a, F32 b) { return {_mm256_sub_ps(a.v, b.v)}; }
static inline F32 operator*(F32 a, F32 b) { return {_mm256_mul_ps(a.v, b.v)}; }
static inline F32 operator/(F32 a, F32 b) { return {_mm256_div_ps(a.v, b.v)}; }
static inline F32 fma(F32 a, F32 b, F32 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
static inline F32 max(F32 a, F32 b) { return {_mm256_max_ps(a.v, b.v)}; }
static inline F32 min(F32 a, F32 b) { return {_mm256_min_ps(a.v, b.v)}; }
static inline F32 sqrt(F32 a) { return {_mm256_sqrt_ps(a.v)}; }
static inline F32 where_less(F32 a, F32 b, F32 x, F32 y) {
  return {_mm256_blendv_ps(y.v, x.v, _mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ))};
}
static inline F32 where_equal(F32 a, F32 b, F32 x, F32 y) {
  return {_mm256_blendv_ps(y.v, x.v, _mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ))};
}
static inline F32 round_nearest(F32 a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
static inline __m256 power_of_two(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
static inline F32 scale_exponent(F32 a, F32 n) {  // in two halves, so that results may be subnormal
  const __m256i e = _mm256_cvtps_epi32(n.v), half = _mm256_srai_epi32(e, 1);
  return {_mm256_mul_ps(_mm256_mul_ps(a.v, power_of_two(half)), power_of_two(_mm256_sub_epi32(e, half)))};
}
static inline __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline F32 keep_first(F32 a, int n) {
  return {_mm256_and_ps(a.v, _mm256_castsi256_ps(first_lanes(n)))};
}
static inline F32 load(const float* p) { return {_mm256_loadu_ps(p)}; }
static inline F32 load(const bf16* p) {
  const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16))};
}
static inline F32 load(const fp16* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
static inline F32 load_partial(const float* p, int n) { return {_mm256_maskload_ps(p, first_lanes(n))}; }
static inline F32 load_partial(const bf16* p, int n) {
  bf16 whole[8] = {};
  std::memcpy(whole, p, static_cast<std::size_t>(n) * sizeof(bf16));
  return load(whole);
}
static inline F32 load_partial(const fp16* p, int n) {
  fp16 whole[8] = {};
  std::memcpy(whole, p, static_cast<std::size_t>(n) * sizeof(fp16));
  return load(whole);
}
static inline __m128i to_bf16(F32 a) {
  const __m256i u = _mm256_castps_si256(a.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  const __m256 nan = _mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q);
  const __m256i kept =
      _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), nan));
  const __m256i high = _mm256_srli_epi32(kept, 16);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(high, high), 0x08);
  return _mm256_castsi256_si128(packed);
}
static inline void store(float* p, F32 a) { _mm256_storeu_ps(p, a.v); }
static inline void store(bf16* p, F32 a) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_bf16(a)); }
static inline void store(fp16* p, F32 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
static inline void store_partial(float* p, F32 a, int n) { _mm256_maskstore_ps(p, first_lanes(n), a.v); }
template <class T>
static inline void store_partial(T* p, F32 a, int n) {
  T whole[8];
  store(whole, a);
  std::memcpy(p, whole, static_cast<std::size_t>(n) * sizeof(T));
}
static inline float sum(F32 a) {
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
static inline float top(F32 a) {
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

#else  // plain: four lanes that any compiler turns into SSE

struct F32 {
  static constexpr int kWidth = 4;
  float v[4];
};
template <class F>
static inline F32 lanes(F f) {
  F32 r;
  for (int i = 0; i < 4; ++i) r.v[i] = f(i);
  return r;
}
static inline F32 broadcast(float x) { return {{x, x, x, x}}; }
static inline F32 operator+(F32 a, F32 b) {
  return lanes([&](int i) { return a.v[i] + b.v[i]; });
}
static inline F32 operator-(F32 a, F32 b) {
  return lanes([&](int i) { return a.v[i] - b.v[i]; });
}
static inline F32 operator*(F32 a, F32 b) {
  return lanes([&](int i) { return a.v[i] * b.v[i]; });
}
static inline F32 operator/(F32 a, F32 b) {
  return lanes([&](int i) { return a.v[i] / b.v[i]; });
}
// Two roundings: a fused one would be a library call per lane here.
static inline F32 fma(F32 a, F32 b, F32 c) {
  return lanes([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
}
static inline F32 max(F32 a, F32 b) {
  return lanes([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
static inline F32 min(F32 a, F32 b) {
  return lanes([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
static inline F32 sqrt(F32 a) {
  return lanes([&](int i) { return std::sqrt(a.v[i]); });
}
static inline F32 where_less(F32 a, F32 b, F32 x, F32 y) {
  return lanes([&](int i) { return a.v[i] < b.v[i] ? x.v[i] : y.v[i]; });
}
static inline F32 where_equal(F32 a, F32 b, F32 x, F32 y) {
  return lanes([&](int i) { return a.v[i] == b.v[i] ? x.v[i] : y.v[i]; });
}
static inline F32 round_nearest(F32 a) {
  return lanes([&](int i) { return std::nearbyint(a.v[i]); });
}
static inline F32 scale_exponent(F32 a, F32 n) {
  return lanes([&](int i) { return std::ldexp(a.v[i], static_cast<int>(n.v[i])); });
}
static inline F32 keep_first(F32 a, int n) {
  return lanes([&](int i) { return i < n ? a.v[i] : 0.0f; });
}
template <class T>
static inline F32 load(const T* p) {
  return lanes([&](int i) { return static_cast<float>(p[i]); });
}
template <class T>
static inline F32 load_partial(const T* p, int n) {
  return lanes([&](int i) { return i < n ? static_cast<float>(p[i]) : 0.0f; });
}
template <class T>
static inline void store_partial(T* p, F32 a, int n) {
  for (int i = 0; i < n; ++i) p[i] = static_cast<T>(a.v[i]);
}
template <class T>
static inline void store(T* p, F32 a) {
  store_partial(p, a, 4);
}
static inline float sum(F32 a) { return (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]); }
static inline float top(F32 a) {
  const F32 m = max(a, {{a.v[2], a.v[3], a.v[2], a.v[3]}});
  return m.v[0] > m.v[1] ? m.v[0] : m.v[1];
}

#endif

static inline F32 zero_vector() { return broadcast(0.0f); }

// e^x to about one unit in the last place: x = n ln2 + r, e^r by its series to r^7 on |r| <= ln2 / 2, times
// 2^n. Below -104 it is 0, above 88.73 it is Inf; NaN stays NaN.
static inline F32 exp(F32 x) {
  // The clamped value is the first operand's when the other is NaN, so NaN must be second.
  const F32 c = max(broadcast(-104.0f), min(broadcast(89.0f), x));
  const F32 n = round_nearest(c * broadcast(1.44269504088896f));
  F32 r = fma(n, broadcast(-0.693145751953125f), c);  // ln2 in two parts: n times the first is exact
  r = fma(n, broadcast(-1.42860682030941723212e-6f), r);
  F32 p = broadcast(1.0f / 5040);
  p = fma(p, r, broadcast(1.0f / 720));
  p = fma(p, r, broadcast(1.0f / 120));
  p = fma(p, r, broadcast(1.0f / 24));
  p = fma(p, r, broadcast(1.0f / 6));
  p = fma(p, r, broadcast(0.5f));
  p = fma(p, r, broadcast(1.0f));
  p = fma(p, r, broadcast(1.0f));
  return scale_exponent(p, n);
}

// Calls f(column, lanes) over [0, n): full vectors, then one partial.
template <class F>
static inline void for_vectors(int64_t n, F f) {
  int64_t i = 0;
  for (; i + F32::kWidth <= n; i += F32::kWidth) f(i, F32::kWidth);
  if (i < n) f(i, static_cast<int>(n - i));
}
template <class T>
static inline F32 load_some(const T* p, int n) {
  return n == F32::kWidth ? load(p) : load_partial(p, n);
}
template <class T>
static inline void store_some(T* p, F32 a, int n) {
  n == F32::kWidth ? store(p, a) : store_partial(p, a, n);
}

// Sums f(column, lanes) over [0, n) in four accumulators, which hide the latency of the addition. Lanes past
// the end must come out as zero.
template <class F>
static inline float sum_over(int64_t n, F f) {
  F32 s0 = zero_vector(), s1 = s0, s2 = s0, s3 = s0;
  constexpr int64_t w = F32::kWidth;
  int64_t i = 0;
  for (; i + 4 * w <= n; i += 4 * w) {
    s0 = s0 + f(i, F32::kWidth);
    s1 = s1 + f(i + w, F32::kWidth);
    s2 = s2 + f(i + 2 * w, F32::kWidth);
    s3 = s3 + f(i + 3 * w, F32::kWidth);
  }
  for (; i + w <= n; i += w) s0 = s0 + f(i, F32::kWidth);
  if (i < n) s1 = s1 + f(i, static_cast<int>(n - i));
  return sum((s0 + s1) + (s2 + s3));
}

// Writes a gradient: adds to what is there, or overwrites.
template <class T>
static inline void put_some(T* p, F32 a, int n, bool accumulate) {
  store_some(p, accumulate ? load_some(p, n) + a : a, n);
}

// Asks for memory that will be read soon; any address will do. The backward passes of norms fetch the next
// row while they finish this one, which took 15 % off them in bf16 (AMD EPYC, rows of 4096); forward passes,
// which write as much as they read, gained nothing.
static inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

// As many rows as a vector has lanes, turned into columns.
#if KILN_SIMD_LEVEL == 2
static inline void transpose_square(F32 (&r)[16]) {
  __m512 t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i].v, r[i + 1].v);
    t[i + 1] = _mm512_unpackhi_ps(r[i].v, r[i + 1].v);
  }
  __m512 u[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    u[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; ++i) {
    const __m512 a = _mm512_shuffle_f32x4(u[i], u[i + 4], 0x88),
                 b = _mm512_shuffle_f32x4(u[i], u[i + 4], 0xdd);
    const __m512 c = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0x88),
                 d = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0xdd);
    r[i].v = _mm512_shuffle_f32x4(a, c, 0x88);
    r[i + 8].v = _mm512_shuffle_f32x4(a, c, 0xdd);
    r[i + 4].v = _mm512_shuffle_f32x4(b, d, 0x88);
    r[i + 12].v = _mm512_shuffle_f32x4(b, d, 0xdd);
  }
}
#elif KILN_SIMD_LEVEL == 1
static inline void transpose_square(F32 (&r)[8]) {
  __m256 t[8], u[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i].v, r[i + 1].v);
    t[i + 1] = _mm256_unpackhi_ps(r[i].v, r[i + 1].v);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 4) {
    u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {
    r[i].v = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    r[i + 4].v = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}
#else
static inline void transpose_square(F32 (&r)[4]) {
  for (int i = 0; i < 4; ++i) {
    for (int j = i + 1; j < 4; ++j) {
      const float t = r[i].v[j];
      r[i].v[j] = r[j].v[i];
      r[j].v[i] = t;
    }
  }
}
#endif
