// What simd_test.cpp runs at every vector width; included by simd_each.h.

static inline void exp_all(const float* x, float* y, int64_t n) {
  for_vectors(n, [&](int64_t i, int lanes) { store_some(y + i, exp(load_some(x + i, lanes)), lanes); });
}

template <class T>
static void to_float(const T* x, float* y, int64_t n) {
  for_vectors(n, [&](int64_t i, int lanes) { store_some(y + i, load_some(x + i, lanes), lanes); });
}

template <class T>
static void from_float(const float* x, T* y, int64_t n) {
  for_vectors(n, [&](int64_t i, int lanes) { store_some(y + i, load_some(x + i, lanes), lanes); });
}

static inline float sum_all(const float* x, int64_t n) {
  return sum_over(n, [&](int64_t i, int lanes) { return load_some(x + i, lanes); });
}

static inline float sum_kept(const float* x, int kept) { return sum(keep_first(load(x), kept)); }

static inline float top_of(const float* x) { return top(load(x)); }
static inline int width() { return F32::kWidth; }
