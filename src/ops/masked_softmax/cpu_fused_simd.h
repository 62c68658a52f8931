// Rows of masked_softmax's fused variant; included once per vector width (device/cpu/simd_each.h). The first
// n of `cols` elements are seen.

// `kept` holds n exponentials in fp32, y itself where that is fp32; null: they are taken twice.
template <class T>
static void masked_softmax_row(const T* x, T* y, int64_t n, int64_t cols, float scale, float* kept) {
  float highest = -INFINITY;
  F32 tops = broadcast(highest);
  const F32 factor = broadcast(scale);
  int64_t c = 0;
  for (; c + F32::kWidth <= n; c += F32::kWidth) tops = max(tops, load(x + c) * factor);
  for (; c < n; ++c) {  // a NaN may be passed over: the sum of exponentials then finds it
    const float v = static_cast<float>(x[c]) * scale;
    highest = v > highest ? v : highest;
  }
  const F32 largest = broadcast(top(tops) > highest ? top(tops) : highest);
  const float total = sum_over(n, [&](int64_t at, int lanes) {
    const F32 e = keep_first(exp(load_some(x + at, lanes) * factor - largest), lanes);
    if (kept != nullptr) store_some(kept + at, e, lanes);
    return e;
  });
  const F32 share = broadcast(1 / total);
  for_vectors(n, [&](int64_t at, int lanes) {
    const F32 e =
        kept != nullptr ? load_some(kept + at, lanes) : exp(load_some(x + at, lanes) * factor - largest);
    store_some(y + at, e * share, lanes);
  });
  for_vectors(cols - n, [&](int64_t at, int lanes) { store_some(y + n + at, zero_vector(), lanes); });
}

// dx = scale * y * (dy - sum(dy * y)) where seen, 0 elsewhere.
template <class T>
static void masked_softmax_grad_row(const T* y, const T* dy, T* dx, int64_t n, int64_t cols, float scale,
                                    bool add) {
  const F32 factor = broadcast(scale);
  const F32 dot = broadcast(
      sum_over(n, [&](int64_t c, int lanes) { return load_some(dy + c, lanes) * load_some(y + c, lanes); }));
  for_vectors(n, [&](int64_t c, int lanes) {
    put_some(dx + c, factor * load_some(y + c, lanes) * (load_some(dy + c, lanes) - dot), lanes, add);
  });
  if (add) return;
  for_vectors(cols - n, [&](int64_t c, int lanes) { store_some(dx + n + c, zero_vector(), lanes); });
}
