// What a backward in one kernel needs of each query before it begins. Floor: o and dO once in.
#pragma once

#include "ops/attention/flash/tiles.cuh"
#include "ops/attention/cuda_hopper_walk.h"
#include "ops/cuda_device/early.cuh"

namespace kiln::hopper {

using flash::HeadRows;
using flash::kLog2E;

// delta, and lse as the backward wants it, for rows up to `padded`; eight threads to a query. Also sets the
// counters that the backward begins with to zero.
template <class T>
struct DeltaArguments {
  AttentionProblem p;
  HeadRows<const T> o, dout;
  const float* lse;
  float *lse2, *delta;
  int padded;
  int* counters;
  int64_t counter_count;
  Sizes z;
  Sequences sequences;
  int queries;  // of a tile
};

// kPacks: rows of o and dO are whole, aligned packs of 16 bytes.
template <class T, bool kPacks = true>
__global__ void __launch_bounds__(256) delta_kernel(const __grid_constant__ DeltaArguments<T> a) {
  let_next_kernel_begin();
  const AttentionProblem& p = a.p;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x, at = thread / 8;
  for (int64_t c = thread; c < a.counter_count; c += static_cast<int64_t>(gridDim.x) * 256) a.counters[c] = 0;
  const int64_t head = at / a.padded;
  if (head >= p.batches() * p.H) return;  // all eight threads of it
  const int place = static_cast<int>(at % a.padded);
  Sizes z = a.z;
  if (p.varied) z.enter_tile(p, a.sequences, 1, a.queries, place / a.queries);
  const int D = static_cast<int>(p.D), i = place - z.first_stat;
  const bool there = i >= 0 && i < z.Tq;
  float sum = 0;
  if (there) {
    const T* o = a.o.at(head / p.H, head % p.H, D, z.first_query + i);
    const T* dout = a.dout.at(head / p.H, head % p.H, D, z.first_query + i);
    if constexpr (kPacks) {
      for (int c = static_cast<int>(thread % 8) * 8; c < D; c += 64) {
        const Pack<T> x = load_pack(o + c), y = load_pack(dout + c);
#pragma unroll
        for (int k = 0; k < 8; ++k) sum += x[k] * y[k];
      }
    } else {
      for (int c = static_cast<int>(thread % 8); c < D; c += 8)
        sum += static_cast<float>(o[c]) * static_cast<float>(dout[c]);
    }
  }
  const unsigned eight = 0xffu << (threadIdx.x % 32 / 8 * 8);
#pragma unroll
  for (int step = 1; step < 8; step *= 2) sum += __shfl_xor_sync(eight, sum, step);
  if (thread % 8 != 0) return;
  const float lse = there ? a.lse[head * p.query_rows() + z.first_query + i] : -INFINITY;
  a.delta[at] = sum;
  a.lse2[at] = lse == -INFINITY ? INFINITY : lse * kLog2E;
}

}  // namespace kiln::hopper
