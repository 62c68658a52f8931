// Reductions over a block in an order that depends on the block size alone, so they give the same bits every
// time. One-dimensional blocks whose size is a multiple of 32; every thread must take part, and every thread
// gets the result.
#pragma once

#include <cmath>

namespace kiln {

// A butterfly: both partners of an exchange combine the same two values, so (the operation being commutative)
// all 32 lanes end with the same bits.
template <class V, class Combine>
__device__ V warp_reduce(V v, Combine combine) {
  for (int distance = 16; distance > 0; distance /= 2) {
    v = combine(v, __shfl_xor_sync(0xffffffffu, v, distance));
  }
  return v;
}

template <class V, class Combine>
__device__ V block_reduce(V v, V neutral, Combine combine) {
  __shared__ V partial[32];  // one per warp; a block has at most 32
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  v = warp_reduce(v, combine);
  __syncthreads();  // whoever still reads the previous reduction's partials
  if (lane == 0) partial[warp] = v;
  __syncthreads();
  v = lane < blockDim.x / 32 ? partial[lane] : neutral;
  return warp_reduce(v, combine);  // each warp by itself, all alike
}

struct Add {
  template <class V>
  __device__ V operator()(V a, V b) const {
    return a + b;
  }
};

// NaN loses: a sum taken later with the maximum brings it back.
struct Larger {
  template <class V>
  __device__ V operator()(V a, V b) const {
    return b > a ? b : a;
  }
};

template <class V>
__device__ V block_sum(V v) {
  return block_reduce(v, V(0), Add{});
}

template <class V>
__device__ V block_max(V v) {
  return block_reduce(v, V(-INFINITY), Larger{});
}

}  // namespace kiln
