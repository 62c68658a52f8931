// Rows of softmax's fused variant; included once per vector width (device/cpu/simd_each.h).

// The largest element. A NaN may be passed over here; the sum of exponentials then finds it.
template <class T>
static inline float row_top(const T* x, int64_t cols) {
  float result = static_cast<float>(x[0]);
  int64_t c = 0;
  if (cols >= F32::kWidth) {
    F32 v = load(x);
    for (c = F32::kWidth; c + F32::kWidth <= cols; c += F32::kWidth) v = max(v, load(x + c));
    result = top(v);
  }
  for (; c < cols; ++c) {
    const float v = static_cast<float>(x[c]);
    result = v > result ? v : result;
  }
  return result;
}

// `kept` holds the row's exponentials in fp32, y itself where that is fp32; null: they are taken twice.
template <class T>
static void softmax_row(const T* x, T* y, int64_t cols, float* kept) {
  const F32 largest = broadcast(row_top(x, cols));
  const float total = sum_over(cols, [&](int64_t c, int n) {
    const F32 e = keep_first(exp(load_some(x + c, n) - largest), n);
    if (kept != nullptr) store_some(kept + c, e, n);
    return e;
  });
  const F32 scale = broadcast(1 / total);
  for_vectors(cols, [&](int64_t c, int n) {
    const F32 e = kept != nullptr ? load_some(kept + c, n) : exp(load_some(x + c, n) - largest);
    store_some(y + c, e * scale, n);
  });
}

// dx = y * (dy - sum(dy * y))
template <class T>
static void softmax_grad_row(const T* y, const T* dy, T* dx, int64_t cols, bool add) {
  const F32 dot =
      broadcast(sum_over(cols, [&](int64_t c, int n) { return load_some(dy + c, n) * load_some(y + c, n); }));
  for_vectors(cols, [&](int64_t c, int n) {
    put_some(dx + c, load_some(y + c, n) * (load_some(dy + c, n) - dot), n, add);
  });
}
