// The sum over ranks for one vector width. Included by reduce_ranks.cpp through device/cpu/simd_each.h; no
// guard. Each element's additions are those of the plain loop, so every width gives the same bits. Loads come
// before stores, since a destination may be one of the sources.

template <class T>
static void sum_ranks(const RankMemory& dst, const RankMemory& src, int64_t count) {
  int64_t i = 0;
  if constexpr (sizeof(T) < 8) {
    for (; i + F32::kWidth <= count; i += F32::kWidth) {
      F32 sum = load(reinterpret_cast<const T*>(src.data[0]) + i);
      for (int r = 1; r < src.count; ++r) sum = sum + load(reinterpret_cast<const T*>(src.data[r]) + i);
      for (int d = 0; d < dst.count; ++d) store(reinterpret_cast<T*>(dst.data[d]) + i, sum);
    }
    if (i < count) {
      const int n = static_cast<int>(count - i);
      F32 sum = load_partial(reinterpret_cast<const T*>(src.data[0]) + i, n);
      for (int r = 1; r < src.count; ++r)
        sum = sum + load_partial(reinterpret_cast<const T*>(src.data[r]) + i, n);
      for (int d = 0; d < dst.count; ++d) store_partial(reinterpret_cast<T*>(dst.data[d]) + i, sum, n);
    }
    return;
  }
  constexpr int64_t kBlock = 64;  // doubles at a time, in an array that the compiler keeps in vectors
  for (; i < count; i += kBlock) {
    const int64_t n = count - i < kBlock ? count - i : kBlock;
    Accum<T> sum[kBlock];
    for (int64_t k = 0; k < n; ++k)
      sum[k] = static_cast<Accum<T>>((reinterpret_cast<const T*>(src.data[0]) + i)[k]);
    for (int r = 1; r < src.count; ++r) {
      const T* const more = reinterpret_cast<const T*>(src.data[r]) + i;
      for (int64_t k = 0; k < n; ++k) sum[k] += static_cast<Accum<T>>(more[k]);
    }
    for (int d = 0; d < dst.count; ++d) {
      T* const to = reinterpret_cast<T*>(dst.data[d]) + i;
      for (int64_t k = 0; k < n; ++k) to[k] = static_cast<T>(sum[k]);
    }
  }
}
