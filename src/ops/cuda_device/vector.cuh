// Sixteen bytes at a time: the widest access a thread has, and what it takes to reach the memory's own speed.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace kiln {

// Consecutive elements of T that fill one access, kept as they came: four registers, where one register per
// element would be up to sixteen. An element is widened when it is asked for.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  uint32_t word[4];

  __device__ float operator[](int i) const;
  __device__ static Pack of(const float (&v)[kSize]);  // rounds each once
};

template <>
__device__ inline float Pack<float>::operator[](int i) const {
  return __uint_as_float(word[i]);
}

template <>
__device__ inline Pack<float> Pack<float>::of(const float (&v)[kSize]) {
  return {{__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3])}};
}

template <>
__device__ inline float Pack<bf16>::operator[](int i) const {
  return __uint_as_float(i % 2 == 0 ? word[i / 2] << 16 : word[i / 2] & 0xffff0000u);
}

template <>
__device__ inline float Pack<fp16>::operator[](int i) const {
  const auto bits = static_cast<uint16_t>(i % 2 == 0 ? word[i / 2] : word[i / 2] >> 16);
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits));
  return f;
}

__device__ inline uint32_t two_of(float low, float high, bf16 /*type*/) {
#if __CUDA_ARCH__ >= 800
  uint32_t two;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  return two;
#else
  return bf16(low).bits | static_cast<uint32_t>(bf16(high).bits) << 16;
#endif
}

__device__ inline uint32_t two_of(float low, float high, fp16 /*type*/) {
#if __CUDA_ARCH__ >= 800
  uint32_t two;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  return two;
#else
  return fp16(low).bits | static_cast<uint32_t>(fp16(high).bits) << 16;
#endif
}

template <class T>
__device__ inline Pack<T> Pack<T>::of(const float (&v)[kSize]) {
  Pack p;
#pragma unroll
  for (int i = 0; i < 4; ++i) p.word[i] = two_of(v[2 * i], v[2 * i + 1], T{});
  return p;
}

template <class T>
__device__ Pack<T> load_pack(const T* at) {
  const uint4 bits = *reinterpret_cast<const uint4*>(at);
  return {{bits.x, bits.y, bits.z, bits.w}};
}

template <class T>
__device__ void store_pack(T* at, const Pack<T>& p) {
  *reinterpret_cast<uint4*>(at) = {p.word[0], p.word[1], p.word[2], p.word[3]};
}

// Read once and not again soon: leaves the cache to others.
template <class T>
__device__ Pack<T> stream_load_pack(const T* at) {
  const uint4 bits = __ldcs(reinterpret_cast<const uint4*>(at));
  return {{bits.x, bits.y, bits.z, bits.w}};
}

template <class T>
__device__ void stream_pack(T* at, const Pack<T>& p) {
  __stcs(reinterpret_cast<uint4*>(at), uint4{p.word[0], p.word[1], p.word[2], p.word[3]});
}

// Writes a gradient that may have to add to what is there.
template <class T>
__device__ void put_pack(T* at, float (&value)[Pack<T>::kSize], bool accumulate) {
  if (accumulate) {
    const Pack<T> before = load_pack(at);
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i) value[i] += before[i];
  }
  store_pack(at, Pack<T>::of(value));
}

// A fixed number of elements whatever their type, in one access of up to 16 bytes.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Wide {
  static_assert(sizeof(T) * kCount <= 16);
  T v[kCount];
};

template <int kCount, class T>
__device__ Wide<T, kCount> load_wide(const T* at) {
  return *reinterpret_cast<const Wide<T, kCount>*>(at);
}

template <class T, int kCount>
__device__ void store_wide(T* at, const Wide<T, kCount>& w) {
  *reinterpret_cast<Wide<T, kCount>*>(at) = w;
}

}  // namespace kiln
