// Rows of rope's fused variant; included once per vector width (device/cpu/simd_each.h).

// Turns all heads of one row. Rotate-half: the pairs of a head are two plain ranges, so vectors need no
// shuffles.
template <class T>
static void rope_row(const RopeRow<T>& a) {
  for (int64_t h = 0; h < a.heads; ++h) {
    const T *first = a.in + 2 * h * a.pairs, *second = first + a.pairs;
    T *y = a.out + 2 * h * a.pairs, *z = y + a.pairs;
    for_vectors(a.pairs, [&](int64_t i, int n) {
      const F32 u = load_some(first + i, n), v = load_some(second + i, n);
      const F32 c = load_some(a.cosine + i, n), s = load_some(a.sine + i, n) * broadcast(a.sign);
      put_some(y + i, u * c - v * s, n, a.accumulate);
      put_some(z + i, fma(u, s, v * c), n, a.accumulate);
    });
  }
}
