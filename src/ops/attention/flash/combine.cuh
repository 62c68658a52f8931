// Combines what flash's split-KV forward found in each split of the keys: o = sum_s exp(L_s - L) o_s with
// L = log sum_s exp(L_s), the splits in order, so always the same bits. A split in which a query sees nothing
// has L_s = -Inf and o_s = 0. Roofline: the splits' o and lse once in, o and lse once out; mostly from the L2
// cache, where the splits were written just before.
#pragma once

#include "ops/attention/flash/tiles.cuh"
#include "ops/cuda_device/pdl.cuh"

namespace kiln::flash {

// Where the splits leave their o and lse; see SplitWorkspace.
struct SplitKv {
  int count = 1;
  int64_t rows = 0;      // B * H * Tq
  float* o = nullptr;    // [count, rows, width of the tiles], divided by the split's own sum
  float* lse = nullptr;  // [count, rows]
};

// A thread has eight channels of a query.
template <class T, int kD>
__global__ void __launch_bounds__(128)
    flash_combine_kernel(AttentionProblem p, SplitKv split_kv, HeadRows<T> o, float* lse) {
  pdl_wait();
  constexpr int kVectors = kD / 8;  // of eight channels
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * 128 + threadIdx.x, row = thread / kVectors;
  const int D = static_cast<int>(p.D), c = static_cast<int>(thread % kVectors) * 8;
  if (row >= split_kv.rows || c >= D) return;
  float top = -INFINITY;
#pragma unroll 8
  for (int s = 0; s < split_kv.count; ++s)
    top = fmaxf(top, split_kv.lse[s * split_kv.rows + row]);  // NaN loses here
  const float shift = top == -INFINITY ? 0.0f : top;
  float sum = 0, combined[8] = {};
#pragma unroll 8
  for (int s = 0; s < split_kv.count; ++s) {
    const int64_t at = s * split_kv.rows + row;
    const float scale = exp2_fast((split_kv.lse[at] - shift) * kLog2E);  // and shows here
    sum += scale;
    const auto* from = reinterpret_cast<const float4*>(split_kv.o + at * kD + c);
    const float4 low = from[0], high = from[1];
    combined[0] += scale * low.x, combined[1] += scale * low.y;
    combined[2] += scale * low.z, combined[3] += scale * low.w;
    combined[4] += scale * high.x, combined[5] += scale * high.y;
    combined[6] += scale * high.z, combined[7] += scale * high.w;
  }
  const float factor = sum == 0 ? 0.0f : 1.0f / sum;
#pragma unroll
  for (float& x : combined) x *= factor;
  if (c == 0) lse[row] = sum == 0 ? -INFINITY : shift + logf(sum);
  const int64_t head = row / p.Tq;
  T* to = o.at(head / p.H, head % p.H, D, row % p.Tq) + c;
  if (o.vectorizable) return store_pack(to, Pack<T>::of(combined));
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    if (c + k < D) to[k] = static_cast<T>(combined[k]);
  }
}

// A strip's o of one split: eight bytes a thread, of which a row's four fill a sector of memory.
template <int kTiles>
__device__ void store_split(float* rows, int left, int D, const FragAcc (&sums)[kTiles], float low_factor,
                            float high_factor) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    if (n * 8 >= D) break;
    float* to = rows + g * (kTiles * 8) + n * 8 + 2 * q;
    if (g < left) *reinterpret_cast<float2*>(to) = {sums[n].at[0] * low_factor, sums[n].at[1] * low_factor};
    if (g + 8 < left) {
      *reinterpret_cast<float2*>(to + 8 * kTiles * 8) = {sums[n].at[2] * high_factor,
                                                         sums[n].at[3] * high_factor};
    }
  }
}

}  // namespace kiln::flash
