// Rows of cast's fused variant; included once per vector width (device/cpu/simd_each.h).

template <class S, class T>
static void cast_row(const S* x, T* y, int64_t cols, bool accumulate) {
  for_vectors(cols, [&](int64_t c, int n) { put_some(y + c, load_some(x + c, n), n, accumulate); });
}
