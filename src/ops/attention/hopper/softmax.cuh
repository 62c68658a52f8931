// The online softmax of flash_hopper's forward, in fp32 in registers.
#pragma once

#include "ops/cuda_device/mma.cuh"

namespace kiln::hopper {

// Of a thread's two queries of its warp's sixteen, g and g + 8 (mma.cuh). Four lanes share a query: the
// maximum is theirs together, the sum each one's own until the end.
struct OnlineSoftmax {
  float top[2] = {-INFINITY, -INFINITY};  // of the scores so far, unscaled
  float sum[2] = {0, 0};                  // this thread's part

  // Scores to probabilities; `keep` is what the sums so far must be multiplied by.
  template <int kTiles>
  __device__ void update(FragAcc (&s)[kTiles], float scale_log2, float (&keep)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = top[half];
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
        most = fmaxf(most, fmaxf(s[n].at[2 * half], s[n].at[2 * half + 1]));  // NaN shows in the sum
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      const float shift = most == -INFINITY ? 0.0f : most * scale_log2;  // no key seen yet: 2^-Inf = 0
      keep[half] = exp2_fast(top[half] * scale_log2 - shift);
      top[half] = most;
      float added = 0;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          s[n].at[e] = exp2_fast(s[n].at[e] * scale_log2 - shift);
          added += s[n].at[e];
        }
      }
      sum[half] = sum[half] * keep[half] + added;
    }
  }
};

}  // namespace kiln::hopper
