// The non-finite slow path of flash_hopper: row by row, where a result is not finite. Its matmuls take in
// masked pairs with a probability of zero, which is right unless the masked value is infinite or NaN: 0 *
// NaN. Every such accident shows in the result, so the fast path pays for nothing but a look at what it is
// about to write. These sums go over the seen pairs alone; a NaN that was attended to comes out again.
#pragma once

#include "ops/attention/flash/tiles.cuh"
#include "ops/attention/hopper/backward_tile_scheduler.h"

namespace kiln::hopper {

using flash::HeadRows;
using flash::kLog2E;

// A warp's lanes have channels lane, lane + 32, ... of a row.
template <int kD>
struct LaneRow {
  static constexpr int kEach = (kD + 31) / 32;
  float at[kEach] = {};

  template <class T>
  __device__ static LaneRow of(const T* row, int D) {
    LaneRow r;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int c = static_cast<int>(threadIdx.x % 32) + 32 * k;
      if (c < D) r.at[k] = static_cast<float>(row[c]);
    }
    return r;
  }
  __device__ float dot(const LaneRow& other) const {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kEach; ++k) sum += at[k] * other.at[k];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    return sum;
  }
  __device__ void add(float factor, const LaneRow& other) {
#pragma unroll
    for (int k = 0; k < kEach; ++k) at[k] += factor * other.at[k];
  }
  __device__ bool finite() const {
    float zero = 0;
#pragma unroll
    for (int k = 0; k < kEach; ++k) zero += at[k] * 0.0f;
    return __all_sync(0xffffffffu, zero == 0) != 0;
  }
  // To a row of global memory, channels first .. end of it.
  template <class T>
  __device__ void put(T* row, int first, int end, float factor, bool accumulate) const {
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int c = static_cast<int>(threadIdx.x % 32) + 32 * k;
      if (c >= first && c < end) put_grad(row[c], at[k] * factor, accumulate);
    }
  }
};

// Whether all of a warp's values are finite.
template <int kCount>
__device__ bool all_finite(const FragAcc (&sums)[kCount]) {
  float zero = 0;
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) zero += sums[n].at[e] * 0.0f;
  }
  return __all_sync(0xffffffffu, zero == 0) != 0;
}

// o of query i.
template <class T, int kD>
__device__ LaneRow<kD> non_finite_output(const SeqlenInfo& z, const HeadRows<const T>& q,
                                         const HeadRows<const T>& k, const HeadRows<const T>& v, int64_t b,
                                         int64_t h, int64_t i, float lse) {
  const int D = z.D;
  const int64_t hkv = h / z.group, seen = z.visible(static_cast<int>(i));
  const auto query = LaneRow<kD>::of(q.at(b, h, D, z.first_query + i), D);
  LaneRow<kD> o;
  for (int64_t j = 0; j < seen; ++j) {
    const float s = query.dot(LaneRow<kD>::of(k.at(b, hkv, D, z.first_key + j), D)) * z.scale;
    o.add(static_cast<float>(static_cast<T>(exp2_fast((s - lse) * kLog2E))),
          LaneRow<kD>::of(v.at(b, hkv, D, z.first_key + j), D));
  }
  return o;
}

// Gradients by the formulas of backward_mainloop.cuh.
template <class T>
struct NonFiniteGradients {
  const SeqlenInfo& z;
  const HeadRows<const T>&q, &k, &v, &dout;
  const float *lse2, *delta;  // [B, H, padded]
  int padded;

  __device__ int64_t stat(int64_t b, int64_t h, int64_t i) const {
    return (b * z.H + h) * padded + z.first_stat + i;
  }
  struct Pair {
    float probability, score_gradient;
  };
  template <int kD>
  __device__ Pair pair(const LaneRow<kD>& query, const LaneRow<kD>& key, const LaneRow<kD>& value,
                       const LaneRow<kD>& gradient, int64_t at) const {
    const auto probability =
        static_cast<float>(static_cast<T>(exp2_fast(query.dot(key) * z.scale * kLog2E - lse2[at])));
    return {probability, static_cast<float>(static_cast<T>(probability * (gradient.dot(value) - delta[at])))};
  }

  template <int kD>
  __device__ LaneRow<kD> of_query(int64_t b, int64_t h, int64_t i) const {
    const int D = z.D;
    const int64_t hkv = h / z.group, seen = z.visible(static_cast<int>(i));
    const auto query = LaneRow<kD>::of(q.at(b, h, D, z.first_query + i), D),
               gradient = LaneRow<kD>::of(dout.at(b, h, D, z.first_query + i), D);
    LaneRow<kD> dq;
    for (int64_t j = 0; j < seen; ++j) {
      const auto key = LaneRow<kD>::of(k.at(b, hkv, D, z.first_key + j), D),
                 value = LaneRow<kD>::of(v.at(b, hkv, D, z.first_key + j), D);
      dq.add(pair(query, key, value, gradient, stat(b, h, i)).score_gradient, key);
    }
    return dq;
  }

  template <int kD>
  __device__ void of_key(int64_t b, int64_t hkv, int64_t j, LaneRow<kD>& dk, LaneRow<kD>& dv) const {
    const int D = z.D;
    const auto key = LaneRow<kD>::of(k.at(b, hkv, D, z.first_key + j), D),
               value = LaneRow<kD>::of(v.at(b, hkv, D, z.first_key + j), D);
    for (int64_t h = hkv * z.group; h < (hkv + 1) * z.group; ++h) {
      for (int64_t i = 0; i < z.Tq; ++i) {
        if (z.visible(static_cast<int>(i)) <= j) continue;
        const auto query = LaneRow<kD>::of(q.at(b, h, D, z.first_query + i), D),
                   gradient = LaneRow<kD>::of(dout.at(b, h, D, z.first_query + i), D);
        const Pair one = pair(query, key, value, gradient, stat(b, h, i));
        dk.add(one.score_gradient, query);
        dv.add(one.probability, gradient);
      }
    }
  }
};

}  // namespace kiln::hopper
