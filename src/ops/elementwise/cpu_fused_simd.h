// Rows of the elementwise ops' fused variants; included once per vector width (device/cpu/simd_each.h).

static inline F32 sigmoid(F32 x) { return broadcast(1.0f) / (broadcast(1.0f) + exp(zero_vector() - x)); }

// The kinds' formulas, as in unary.h.
static inline F32 value(SiluKind, F32 x, F32) { return x * sigmoid(x); }
static inline F32 slope(SiluKind, F32 x, F32) {
  const F32 s = sigmoid(x), one = broadcast(1.0f);
  return s * fma(x, one - s, one);
}
static inline F32 value(SquareKind, F32 x, F32) { return x * x; }
static inline F32 slope(SquareKind, F32 x, F32) { return x + x; }
static inline F32 value(RsqrtKind, F32 x, F32 eps) { return broadcast(1.0f) / sqrt(x + eps); }
static inline F32 slope(RsqrtKind, F32 y, F32) { return broadcast(-0.5f) * (y * y * y); }
static inline F32 value(ReluKind, F32 x, F32) { return max(zero_vector(), x); }  // NaN second: it stays
static inline F32 value(ScaleKind, F32 x, F32 s) { return x * s; }
static inline F32 slope(ScaleKind, F32, F32 s) { return s; }

template <class Kind, class T>
static void unary_row(const T* x, T* y, int64_t cols, float parameter) {
  const F32 p = broadcast(parameter);
  for_vectors(cols, [&](int64_t c, int n) { store_some(y + c, value(Kind{}, load_some(x + c, n), p), n); });
}

template <class Kind, class T>
static void unary_grad_row(const T* dy, const T* saved, T* dx, int64_t cols, float parameter, bool add) {
  const F32 p = broadcast(parameter);
  for_vectors(cols, [&](int64_t c, int n) {
    put_some(dx + c, load_some(dy + c, n) * slope(Kind{}, load_some(saved + c, n), p), n, add);
  });
}

template <class T>
static void mul_row(const T* a, const T* b, T* y, int64_t cols) {
  for_vectors(cols,
              [&](int64_t c, int n) { store_some(y + c, load_some(a + c, n) * load_some(b + c, n), n); });
}

template <class T>
static void mul_grad_row(const MulGradRow<T>& g, int64_t cols) {
  for_vectors(cols, [&](int64_t c, int n) {
    const F32 d = load_some(g.dy + c, n);
    if (g.da != nullptr) put_some(g.da + c, d * load_some(g.b + c, n), n, g.add_to_da);
    if (g.db != nullptr) put_some(g.db + c, d * load_some(g.a + c, n), n, g.add_to_db);
  });
}

template <class T>
static void sub_row(const T* a, const T* b, T* y, int64_t cols) {
  for_vectors(cols,
              [&](int64_t c, int n) { store_some(y + c, load_some(a + c, n) - load_some(b + c, n), n); });
}

// dx = factor * dy: the gradient of sub's second input, and of mul_rows.
template <class T>
static void scale_grad_row(const T* dy, T* dx, int64_t cols, float factor, bool add) {
  const F32 f = broadcast(factor);
  for_vectors(cols, [&](int64_t c, int n) { put_some(dx + c, load_some(dy + c, n) * f, n, add); });
}

template <class T>
static float dot_row(const T* a, const T* b, int64_t cols) {
  return sum_over(cols, [&](int64_t c, int n) { return load_some(a + c, n) * load_some(b + c, n); });
}

template <class T>
static float sum_row(const T* x, int64_t cols) {
  return sum_over(cols, [&](int64_t c, int n) { return load_some(x + c, n); });
}

template <class T>
static void fill_grad_row(T* dx, int64_t cols, float v, bool add) {
  for_vectors(cols, [&](int64_t c, int n) { put_some(dx + c, broadcast(v), n, add); });
}

// dx = dy * w and partial += dy * x; either may be null.
template <class T>
static void mul_columns_grad_row(const T* dy, const T* x, const T* w, T* dx, bool add, float* partial,
                                 int64_t cols) {
  for_vectors(cols, [&](int64_t c, int n) {
    const F32 d = load_some(dy + c, n);
    if (dx != nullptr) put_some(dx + c, d * load_some(w + c, n), n, add);
    if (partial != nullptr) {
      store_some(partial + c, fma(d, load_some(x + c, n), load_some(partial + c, n)), n);
    }
  });
}
