// The rows of rms_norm's fused variant; included once per vector width (device/cpu/simd_each.h).

template <class T>
static void rms_norm_forward_rows(const RmsNormRows<T>& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const T* x = a.x[r];
    T* y = a.y[r];
    const float squares = sum_over(a.cols, [&](int64_t c, int n) {
      const F32 v = load_some(x + c, n);
      return v * v;
    });
    const float rstd = 1 / std::sqrt(squares / static_cast<float>(a.cols) + a.eps);
    a.rstd[r] = rstd;
    const F32 scale = broadcast(rstd);
    for_vectors(a.cols, [&](int64_t c, int n) {  // the row is in the first cache by now
      store_some(y + c, load_some(x + c, n) * scale * load_some(a.weight + c, n), n);
    });
  }
}

// With n = x * rstd: dx = rstd * (dy * w - n * mean(dy * w * n)). `partial` gets the chunk's share of
// dw = sum over rows of dy * n.
template <class T>
static void rms_norm_backward_rows(const RmsNormGradRows<T>& a, float* partial, int64_t begin, int64_t end) {
  if (partial != nullptr) {
    for_vectors(a.cols, [&](int64_t c, int n) { store_some(partial + c, zero_vector(), n); });
  }
  for (int64_t r = begin; r < end; ++r) {
    const int64_t following = r + 1 < end ? r + 1 : r;
    const T *x = a.x[r], *dy = a.dy[r], *next_x = a.x[following], *next_dy = a.dy[following];
    const float rstd = a.rstd[r];
    const F32 scale = broadcast(rstd);
    const float dot = sum_over(a.cols, [&](int64_t c, int n) {
      const F32 normed = load_some(x + c, n) * scale, d = load_some(dy + c, n);
      if (partial != nullptr) store_some(partial + c, fma(d, normed, load_some(partial + c, n)), n);
      return d * load_some(a.weight + c, n) * normed;
    });
    if (a.dx.base == nullptr) continue;
    const F32 mean = broadcast(dot / static_cast<float>(a.cols));
    T* dx = a.dx[r];
    for_vectors(a.cols, [&](int64_t c, int n) {
      prefetch(next_x + c);
      prefetch(next_dy + c);
      const F32 normed = load_some(x + c, n) * scale;
      put_some(dx + c, scale * (load_some(dy + c, n) * load_some(a.weight + c, n) - normed * mean), n,
               a.add_to_dx);
    });
  }
}
