// The rows of add_rms_norm's fused variant; included once per vector width (device/cpu/simd_each.h).

template <class T>
static void add_rms_norm_rows(const AddRmsNormRows<T>& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const T *x = a.x[r], *residual = a.residual[r];
    T *total = a.sum[r], *y = a.y[r];
    const float squares = sum_over(a.cols, [&](int64_t c, int n) {
      store_some(total + c, load_some(x + c, n) + load_some(residual + c, n), n);
      const F32 v = load_some(total + c, n);  // as stored: rounded to T
      return v * v;
    });
    const float rstd = 1 / std::sqrt(squares / static_cast<float>(a.cols) + a.eps);
    a.rstd[r] = rstd;
    const F32 scale = broadcast(rstd);
    for_vectors(a.cols, [&](int64_t c, int n) {
      store_some(y + c, load_some(total + c, n) * scale * load_some(a.weight + c, n), n);
    });
  }
}
