// One row of logits on F32 vectors, from memory once: its log of the sum of exponentials, and its gradient.
// Used by cross_entropy and by linear_cross_entropy.

// Columns between two looks at the maximum: they stay in the first cache from the look to the exponentials.
static constexpr int64_t kRowBlock = 1024;

// log(sum(exp(x))). Each lane keeps a maximum and its own sum until the end. The maximum starts at the
// lowest finite value: a score of -Inf then adds 0. NaN does not win it, but its exponential is NaN.
template <class T>
static float row_lse(const T* x, int64_t n) {
  F32 highest = broadcast(-3.402823466e38f), total = zero_vector();
  auto add_block = [&](int64_t begin, int64_t vectors) {
    F32 now = highest;
    for (int64_t i = 0; i < vectors; ++i) now = max(load(x + begin + i * F32::kWidth), now);
    F32 part = zero_vector();
    for (int64_t i = 0; i < vectors; ++i) part = part + exp(load(x + begin + i * F32::kWidth) - now);
    total = fma(total, exp(highest - now), part);
    highest = now;
  };
  int64_t at = 0;
  for (; at + kRowBlock <= n; at += kRowBlock) add_block(at, kRowBlock / F32::kWidth);
  add_block(at, (n - at) / F32::kWidth);
  at += (n - at) / F32::kWidth * F32::kWidth;
  if (at < n) {
    float rest[F32::kWidth];
    store(rest, broadcast(-INFINITY));
    store_partial(rest, load_partial(x + at, static_cast<int>(n - at)), static_cast<int>(n - at));
    const F32 now = max(load(rest), highest);
    total = fma(total, exp(highest - now), exp(load(rest) - now));
    highest = now;
  }
  const float all = top(highest);
  return all + std::log(sum(total * exp(highest - broadcast(all))));
}

// out = (add ? out : 0) + weight (softmax(x) - [column is the target]). In place is fine, also where out is
// narrower than x and begins where x does. A target outside the row is no column.
template <class T, class G>
static void row_gradient(const T* x, int64_t n, float lse, float weight, int64_t target, bool add, G* out) {
  const bool known = target >= 0 && target < n;
  float at_target = 0;
  if (known) {
    at_target = weight * (std::exp(static_cast<float>(x[target]) - lse) - 1);
    if (add) at_target += static_cast<float>(out[target]);
  }
  const F32 l = broadcast(lse), w = broadcast(weight);
  for_vectors(n, [&](int64_t c, int lanes) {
    F32 g = w * exp(load_some(x + c, lanes) - l);
    if (add) g = g + load_some(out + c, lanes);
    store_some(out + c, g, lanes);
  });
  if (known) out[target] = static_cast<G>(at_target);
}
