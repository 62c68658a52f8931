// The rows of layer_norm's fused variant; included once per vector width (device/cpu/simd_each.h).

template <class T>
static void layer_norm_forward_rows(const LayerNormRows<T>& a, int64_t begin, int64_t end) {
  const float cols = static_cast<float>(a.cols);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = a.x[r];
    T* y = a.y[r];
    const float mean = sum_over(a.cols, [&](int64_t c, int n) { return load_some(x + c, n); }) / cols;
    const F32 centre = broadcast(mean);
    const float squares = sum_over(a.cols, [&](int64_t c, int n) {
      const F32 d = keep_first(load_some(x + c, n) - centre, n);
      return d * d;
    });
    const float rstd = 1 / std::sqrt(squares / cols + a.eps);
    a.mean[r] = mean;
    a.rstd[r] = rstd;
    const F32 scale = broadcast(rstd);
    for_vectors(a.cols, [&](int64_t c, int n) {
      const F32 normed = (load_some(x + c, n) - centre) * scale;
      store_some(y + c, fma(normed, load_some(a.weight + c, n), load_some(a.bias + c, n)), n);
    });
  }
}

// With n = (x - mean) * rstd and g = dy * w: dx = rstd * (g - mean(g) - n * mean(g * n)). `partial` is the
// chunk's share of dweight and, `cols` further on, of dbias; null where neither is wanted.
template <class T>
static void layer_norm_backward_rows(const LayerNormGradRows<T>& a, float* partial, int64_t begin,
                                     int64_t end) {
  const float cols = static_cast<float>(a.cols);
  if (partial != nullptr) {
    for_vectors(2 * a.cols, [&](int64_t c, int n) { store_some(partial + c, zero_vector(), n); });
  }
  for (int64_t r = begin; r < end; ++r) {
    const int64_t following = r + 1 < end ? r + 1 : r;
    const T *x = a.x[r], *dy = a.dy[r], *next_x = a.x[following], *next_dy = a.dy[following];
    const F32 centre = broadcast(a.mean[r]), scale = broadcast(a.rstd[r]);
    F32 sums = zero_vector(), dots = zero_vector();
    for_vectors(a.cols, [&](int64_t c, int n) {
      const F32 normed = (load_some(x + c, n) - centre) * scale, d = load_some(dy + c, n);
      if (partial != nullptr) {
        store_some(partial + c, fma(d, normed, load_some(partial + c, n)), n);
        store_some(partial + a.cols + c, load_some(partial + a.cols + c, n) + d, n);
      }
      const F32 g = d * load_some(a.weight + c, n);  // zero past the end, so n may be anything there
      sums = sums + g;
      dots = fma(g, normed, dots);
    });
    if (a.dx.base == nullptr) continue;
    const F32 mean_g = broadcast(sum(sums) / cols), mean_gn = broadcast(sum(dots) / cols);
    T* dx = a.dx[r];
    for_vectors(a.cols, [&](int64_t c, int n) {
      prefetch(next_x + c);
      prefetch(next_dy + c);
      const F32 normed = (load_some(x + c, n) - centre) * scale;
      const F32 g = load_some(dy + c, n) * load_some(a.weight + c, n);
      put_some(dx + c, scale * (g - mean_g - normed * mean_gn), n, a.add_to_dx);
    });
  }
}
