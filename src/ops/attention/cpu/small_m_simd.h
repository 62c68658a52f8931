// One query against its keys; included once per vector width (device/cpu/simd_each.h).

static constexpr int kKeysTogether = 4;  // as many sums in flight hide an fma's latency

// q . k for kCount keys from j on. The number of keys at a time changes no bit of any score.
template <int kCount, class T>
static void score_keys(const SmallMQuery<T>& t, int64_t j) {
  F32 s[kCount];
  for (int i = 0; i < kCount; ++i) s[i] = zero_vector();
  const T* k = t.k.base + j * t.k.stride;
  for_vectors(t.D, [&](int64_t c, int n) {
    const F32 q = load(t.wide_q + c);
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) s[i] = fma(q, load_some(k + i * t.k.stride + c, n), s[i]);
  });
  for (int i = 0; i < kCount; ++i) t.scores[j + i] = sum(s[i]);
}

// kVectors vectors of o, from column c on; the last has n lanes.
template <int kVectors, class T>
static void sum_values(const SmallMQuery<T>& t, int64_t c, int n) {
  constexpr int W = F32::kWidth;
  F32 even[kVectors], odd[kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) even[i] = odd[i] = zero_vector();
  const auto add = [&](int64_t j, F32(&s)[kVectors]) {
    const F32 p = broadcast(t.scores[j]);
    const T* v = t.v.base + j * t.v.stride + c;
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i)
      s[i] = fma(p, i + 1 < kVectors ? load(v + i * W) : load_some(v + i * W, n), s[i]);
  };
  int64_t j = 0;
  for (; j + 2 <= t.keys; j += 2) {
    add(j, even);
    add(j + 1, odd);
  }
  if (j < t.keys) add(j, even);
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) store_some(t.o + c + i * W, even[i] + odd[i], i + 1 < kVectors ? W : n);
}

template <class T>
static void attend_to_keys(const SmallMQuery<T>& t) {
  constexpr int W = F32::kWidth;
  for (int64_t unseen = t.keys; unseen < t.all_keys; ++unseen) t.probs[unseen] = static_cast<T>(0.0f);
  if (t.keys == 0) {
    for_vectors(t.D, [&](int64_t c, int n) { store_some(t.o + c, zero_vector(), n); });
    return;
  }
  for_vectors(t.D, [&](int64_t c, int n) {
    store(t.wide_q + c, load_some(t.q + c, n) * broadcast(t.scale));  // a partial load's rest is zero
  });
  int64_t j = 0;
  for (; j + kKeysTogether <= t.keys; j += kKeysTogether) score_keys<kKeysTogether>(t, j);
  for (; j < t.keys; ++j) score_keys<1>(t, j);

  // A NaN score does not win the maximum, but its exponential is NaN.
  float highest = kFlashLowest;
  for (j = 0; j < t.keys; ++j) highest = t.scores[j] > highest ? t.scores[j] : highest;
  const F32 top = broadcast(highest);
  F32 part = zero_vector();
  for_vectors(t.keys, [&](int64_t at, int n) {
    const F32 e = keep_first(exp(load_some(t.scores + at, n) - top), n);
    store_some(t.scores + at, e, n);
    part = part + e;
  });
  const float all = sum(part);
  const F32 share = broadcast(1 / all);
  for_vectors(t.keys, [&](int64_t at, int n) {
    const F32 p = load_some(t.scores + at, n) * share;
    store_some(t.scores + at, p, n);
    store_some(t.probs + at, p, n);
  });

  int64_t c = 0;
  for (; c + 4 * W <= t.D; c += 4 * W) sum_values<4>(t, c, W);
  for (; c < t.D; c += W) sum_values<1>(t, c, t.D - c < W ? static_cast<int>(t.D - c) : W);
}
