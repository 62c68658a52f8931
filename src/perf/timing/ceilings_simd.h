// Multiply-adds on registers alone, once per vector width (device/cpu/simd_each.h includes this three times).
// Enough independent sums to cover the latency of two units: 5 cycles x 2 a cycle, and what registers allow.

#if KILN_SIMD_LEVEL == 0
// mul and add apart: plain x86-64 has no fma. A vector type, because four loose floats do not stay in one
// register.
typedef float CeilingVector __attribute__((vector_size(16)));
constexpr int kCeilingSums = 12;
static inline CeilingVector ceiling_set(float x) { return CeilingVector{x, x, x, x}; }
static inline CeilingVector ceiling_step(CeilingVector s, CeilingVector m, CeilingVector a) {
  return s * m + a;
}
#else
using CeilingVector = F32;
constexpr int kCeilingSums = KILN_SIMD_LEVEL == 2 ? 24 : 12;
static inline CeilingVector ceiling_set(float x) { return broadcast(x); }
static inline CeilingVector ceiling_step(CeilingVector s, CeilingVector m, CeilingVector a) {
  return fma(s, m, a);
}
#endif

constexpr double kCeilingFlops = 2.0 * kCeilingSums * (KILN_SIMD_LEVEL == 0 ? 4 : F32::kWidth);

// `rounds` steps of every sum. m and a come from outside, so nothing can be folded; sums stay near 1.
static float fma_rounds(int64_t rounds, float m, float a) {
  CeilingVector s[kCeilingSums];
  for (int i = 0; i < kCeilingSums; ++i) s[i] = ceiling_set(static_cast<float>(i));
  const CeilingVector mul = ceiling_set(m), add = ceiling_set(a);
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 24
    for (int i = 0; i < kCeilingSums; ++i) s[i] = ceiling_step(s[i], mul, add);
  }
  float total = 0;
  for (const CeilingVector& v : s) {
    float first;
    std::memcpy(&first, &v, sizeof first);
    total += first;
  }
  return total;
}
