// Squares summed in double: those of floats are exact there, and reading memory takes longer than adding.

#if KILN_SIMD_LEVEL == 2
struct SquareSums {
  __m512d low, high;
};
static inline SquareSums no_squares() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
static inline SquareSums with_squares(SquareSums s, F32 x) {
  const __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(x.v));
  const __m512d b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x.v, 1));
  return {_mm512_fmadd_pd(a, a, s.low), _mm512_fmadd_pd(b, b, s.high)};
}
static inline double total(SquareSums s) {
  double lanes[8];
  _mm512_storeu_pd(lanes, _mm512_add_pd(s.low, s.high));
  double sum = 0;
  for (double l : lanes) sum += l;
  return sum;
}
#elif KILN_SIMD_LEVEL == 1
struct SquareSums {
  __m256d low, high;
};
static inline SquareSums no_squares() { return {_mm256_setzero_pd(), _mm256_setzero_pd()}; }
static inline SquareSums with_squares(SquareSums s, F32 x) {
  const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(x.v));
  const __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(x.v, 1));
  return {_mm256_fmadd_pd(a, a, s.low), _mm256_fmadd_pd(b, b, s.high)};
}
static inline double total(SquareSums s) {
  double lanes[4];
  _mm256_storeu_pd(lanes, _mm256_add_pd(s.low, s.high));
  double sum = 0;
  for (double l : lanes) sum += l;
  return sum;
}
#else
struct SquareSums {
  double lane[4];
};
static inline SquareSums no_squares() { return {}; }
static inline SquareSums with_squares(SquareSums s, F32 x) {
  for (int i = 0; i < 4; ++i) s.lane[i] += static_cast<double>(x.v[i]) * static_cast<double>(x.v[i]);
  return s;
}
static inline double total(SquareSums s) { return (s.lane[0] + s.lane[1]) + (s.lane[2] + s.lane[3]); }
#endif

template <class T>
static double sum_of_squares(const T* x, int64_t n) {
  SquareSums even = no_squares(), odd = even;  // two, since an addition's latency is longer than a load
  constexpr int64_t kStep = 2 * F32::kWidth;
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    even = with_squares(even, load(x + i));
    odd = with_squares(odd, load(x + i + F32::kWidth));
  }
  for_vectors(n - i, [&](int64_t c, int lanes) { even = with_squares(even, load_some(x + i + c, lanes)); });
  return total(even) + total(odd);
}
