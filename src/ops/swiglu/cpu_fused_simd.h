// Rows of swiglu's fused variant; included once per vector width (device/cpu/simd_each.h).

static inline F32 sigmoid(F32 g) { return broadcast(1.0f) / (broadcast(1.0f) + exp(zero_vector() - g)); }

template <class T>
static void swiglu_forward_row(const T* gate, const T* up, T* y, int64_t cols) {
  for_vectors(cols, [&](int64_t c, int n) {
    const F32 g = load_some(gate + c, n);
    store_some(y + c, g * sigmoid(g) * load_some(up + c, n), n);
  });
}

// silu'(g) = s (1 + g (1 - s)) with s = sigmoid(g). A null gradient is not wanted.
template <class T>
static void swiglu_backward_row(const SwigluGradRow<T>& a, int64_t cols) {
  const F32 one = broadcast(1.0f);
  for_vectors(cols, [&](int64_t c, int n) {
    const F32 g = load_some(a.gate + c, n), s = sigmoid(g), d = load_some(a.dy + c, n);
    if (a.dgate != nullptr) {
      put_some(a.dgate + c, d * load_some(a.up + c, n) * s * fma(g, one - s, one), n, a.add_to_dgate);
    }
    if (a.dup != nullptr) put_some(a.dup + c, d * g * s, n, a.add_to_dup);
  });
}
