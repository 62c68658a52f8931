// Masks of flash_hopper's passes. Only tiles on the border are masked: those that the diagonal or the end of
// the keys crosses.
#pragma once

#include "ops/cuda_device/mma.cuh"

namespace kiln::hopper {

// Forward, rows are queries. Scores of keys that a thread's two queries do not see become -Inf; `limit`: how
// many keys of this tile each sees.
template <int kTiles>
__device__ void apply_mask(FragAcc (&s)[kTiles], const int (&limit)[2]) {
  const int col = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (n * 8 + col + e % 2 >= limit[e / 2]) s[n].at[e] = -INFINITY;
    }
  }
}

// Backward: key c of the key block is seen by query r of the tile where c <= r + diagonal, and c < keys.
struct KeyBorder {
  bool crossed;  // some query does not see some key
  int diagonal, keys;
};

// Backward, rows are keys. Probabilities of queries that do not see a thread's two keys, `key` and key + 8,
// become 0: a key past the end is seen by none, another from query key - diagonal on. `col`: the thread's
// first query.
template <int kTiles>
__device__ void apply_mask(FragAcc (&p)[kTiles], int diagonal, int keys, int key, int col) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int k = key + half * 8, first_query = k >= keys ? 8 * kTiles : k - diagonal;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; ++e) {
        if (n * 8 + col + e % 2 < first_query) p[n].at[e] = 0;
      }
    }
  }
}

}  // namespace kiln::hopper
