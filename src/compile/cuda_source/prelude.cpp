#include "compile/cuda_source/emit.h"

namespace kiln::compile {

std::string_view cuda_prelude() {
  return R"(typedef unsigned short u16;
typedef long long i64;
struct bf16 { u16 bits; };
struct fp16 { u16 bits; };
template <class T, int N> struct alignas(sizeof(T) * N) Pack { T at[N]; };

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(int x) { return (float)x; }
__device__ inline float widen(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
__device__ inline float widen(fp16 x) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x.bits)); return f; }
__device__ inline void narrow(float& to, float x) { to = x; }
__device__ inline void narrow(bf16& to, float x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }
__device__ inline void narrow(fp16& to, float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }
template <class T> __device__ inline float rounded(float x) { T t; narrow(t, x); return widen(t); }

template <class T, int N> __device__ inline void load(float* to, const T* from) {
  const Pack<T, N> p = *reinterpret_cast<const Pack<T, N>*>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = widen(p.at[i]);
}
template <class T, int N> __device__ inline void store(T* to, const float* from) {
  Pack<T, N> p;
#pragma unroll
  for (int i = 0; i < N; ++i) narrow(p.at[i], from[i]);
  *reinterpret_cast<Pack<T, N>*>(to) = p;
}
__device__ inline float sum2(float a, float b) { return a + b; }
__device__ inline float max2(float a, float b) { return a > b || a != a ? a : b; }

// Over the block, in one order whatever the row; every thread gets the result.
template <int THREADS, class F> __device__ inline float reduce(float x, float none, F join) {
  __shared__ float warps[32];
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x = join(x, __shfl_xor_sync(0xffffffffu, x, d));
  if (THREADS == 32) return x;
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
  __syncthreads();
  x = threadIdx.x % 32 < THREADS / 32 ? warps[threadIdx.x % 32] : none;
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x = join(x, __shfl_xor_sync(0xffffffffu, x, d));
  return x;
}
template <int THREADS> __device__ inline float block_sum(float x) {
  return reduce<THREADS>(x, 0.0f, [](float a, float b) { return sum2(a, b); });
}
template <int THREADS> __device__ inline float block_max(float x) {
  return reduce<THREADS>(x, -__int_as_float(0x7f800000), [](float a, float b) { return max2(a, b); });
}
)";
}

}  // namespace kiln::compile
