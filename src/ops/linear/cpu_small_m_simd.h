// Rows of W against all rows of x; included once per vector width (device/cpu/simd_each.h).

// Rows of W processed together: enough sums in flight to hide an fma's latency, and no more than registers.
// How many changes nothing in any one sum.
template <int kRows>
static constexpr int together() {
  constexpr int kSums = KILN_SIMD_LEVEL == 2 ? 16 : 8;
  return kSums / kRows > 8 ? 8 : kSums / kRows < 1 ? 1 : kSums / kRows;
}

template <int kRows, int kTogether, class T>
static void small_m_group(const SmallMTask<T>& t, int64_t n) {
  constexpr int W = F32::kWidth;
  F32 s[kTogether][kRows];
#pragma GCC unroll 8
  for (int j = 0; j < kTogether; ++j) {
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) s[j][m] = zero_vector();
  }
  const T* w = t.weight + n * t.weight_row;
  int64_t k = 0;
  for (; k + W <= t.in; k += W) {
    F32 right[kTogether];
#pragma GCC unroll 8
    for (int j = 0; j < kTogether; ++j) right[j] = load(w + j * t.weight_row + k);
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      const F32 left = load(t.x + m * t.depth + k);
#pragma GCC unroll 8
      for (int j = 0; j < kTogether; ++j) s[j][m] = fma(left, right[j], s[j][m]);
    }
  }
  if (k < t.in) {
    for (int j = 0; j < kTogether; ++j) {
      const F32 right = load_partial(w + j * t.weight_row + k, static_cast<int>(t.in - k));
      for (int m = 0; m < kRows; ++m) s[j][m] = fma(load(t.x + m * t.depth + k), right, s[j][m]);
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < kTogether; ++j) {
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) t.y[m * t.y_row + n + j] = static_cast<T>(sum(s[j][m]));
  }
}

template <int kRows, class T>
static void small_m(const SmallMTask<T>& t) {
  constexpr int kTogether = together<kRows>();
  int64_t n = t.begin;
  for (; n + kTogether <= t.end; n += kTogether) small_m_group<kRows, kTogether>(t, n);
  for (; n < t.end; ++n) small_m_group<kRows, 1>(t, n);
}
