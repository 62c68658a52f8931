// Joins what flash's forward found in each part of the keys: o = sum_s exp(L_s - L) o_s with
// L = log sum_s exp(L_s), the parts in order, so always the same bits. A part in which a query sees nothing
// has L_s = -Inf and o_s = 0. Floor: the parts' o and lse once in, o and lse once out;
// mostly from the L2 cache, where the parts were written just before.
#pragma once

#include "ops/attention/flash/tiles.cuh"
#include "ops/cuda_device/early.cuh"

namespace kiln::flash {

// Where the parts leave their shares; see SplitWorkspace.
struct KeyParts {
  int count = 1;
  int64_t rows = 0;      // B * H * Tq
  float* o = nullptr;    // [count, rows, width of the tiles], divided by the part's own sum
  float* lse = nullptr;  // [count, rows]
};

// A thread has eight channels of a query.
template <class T, int kD>
__global__ void __launch_bounds__(128)
    flash_join_kernel(AttentionProblem p, KeyParts parts, HeadRows<T> o, float* lse) {
  wait_for_kernel_before();
  constexpr int kPacks = kD / 8;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * 128 + threadIdx.x, row = thread / kPacks;
  const int D = static_cast<int>(p.D), c = static_cast<int>(thread % kPacks) * 8;
  if (row >= parts.rows || c >= D) return;
  float top = -INFINITY;
#pragma unroll 8
  for (int s = 0; s < parts.count; ++s) top = fmaxf(top, parts.lse[s * parts.rows + row]);  // NaN loses here
  const float shift = top == -INFINITY ? 0.0f : top;
  float sum = 0, joined[8] = {};
#pragma unroll 8
  for (int s = 0; s < parts.count; ++s) {
    const int64_t at = s * parts.rows + row;
    const float weight = exp2_fast((parts.lse[at] - shift) * kLog2E);  // and shows here
    sum += weight;
    const auto* from = reinterpret_cast<const float4*>(parts.o + at * kD + c);
    const float4 low = from[0], high = from[1];
    joined[0] += weight * low.x, joined[1] += weight * low.y;
    joined[2] += weight * low.z, joined[3] += weight * low.w;
    joined[4] += weight * high.x, joined[5] += weight * high.y;
    joined[6] += weight * high.z, joined[7] += weight * high.w;
  }
  const float factor = sum == 0 ? 0.0f : 1.0f / sum;
#pragma unroll
  for (float& x : joined) x *= factor;
  if (c == 0) lse[row] = sum == 0 ? -INFINITY : shift + logf(sum);
  const int64_t head = row / p.Tq;
  T* to = o.at(head / p.H, head % p.H, D, row % p.Tq) + c;
  if (o.packs) return store_pack(to, Pack<T>::of(joined));
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    if (c + k < D) to[k] = static_cast<T>(joined[k]);
  }
}

// A strip's share of one part: eight bytes a thread, of which a row's four fill a sector of memory.
template <int kTiles>
__device__ void store_part(float* rows, int left, int D, const TileSums (&sums)[kTiles], float low_factor,
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
