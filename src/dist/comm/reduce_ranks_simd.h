// The sum over ranks for one vector width. Included by reduce_ranks.cpp through device/cpu/simd_each.h; no
// guard. Each element's additions are those of the plain loop, so every width gives the same bits. Loads come
// before stores, since a destination may be one of the sources.

// v[0] becomes the sum.
template <class V>
static inline void add_pairwise(V* v, int count) {
  for (int width = 1; width < count; width *= 2) {
    for (int r = 0; r + width < count; r += 2 * width) v[r] = v[r] + v[r + width];
  }
}

template <class T>
static void sum_ranks(const RankMemory& dst, const RankMemory& src, int64_t count) {
  int64_t i = 0;
  if constexpr (sizeof(T) < 8) {
    for (; i + F32::kWidth <= count; i += F32::kWidth) {
      F32 v[kMaxThreadRanks];
      for (int r = 0; r < src.count; ++r) v[r] = load(reinterpret_cast<const T*>(src.data[r]) + i);
      add_pairwise(v, src.count);
      for (int d = 0; d < dst.count; ++d) store(reinterpret_cast<T*>(dst.data[d]) + i, v[0]);
    }
    if (i < count) {
      const int n = static_cast<int>(count - i);
      F32 v[kMaxThreadRanks];
      for (int r = 0; r < src.count; ++r) v[r] = load_partial(reinterpret_cast<const T*>(src.data[r]) + i, n);
      add_pairwise(v, src.count);
      for (int d = 0; d < dst.count; ++d) store_partial(reinterpret_cast<T*>(dst.data[d]) + i, v[0], n);
    }
    return;
  }
  for (; i < count; ++i) {  // doubles: a step's few numbers
    Accum<T> v[kMaxThreadRanks] = {};
    for (int r = 0; r < src.count; ++r)
      v[r] = static_cast<Accum<T>>(reinterpret_cast<const T*>(src.data[r])[i]);
    add_pairwise(v, src.count);
    for (int d = 0; d < dst.count; ++d) reinterpret_cast<T*>(dst.data[d])[i] = static_cast<T>(v[0]);
  }
}
