// Rows of add's fused variant; included once per vector width (device/cpu/simd_each.h).

template <class T>
static void add_row(const T* a, const T* b, T* y, int64_t cols) {
  for_vectors(cols,
              [&](int64_t c, int n) { store_some(y + c, load_some(a + c, n) + load_some(b + c, n), n); });
}
