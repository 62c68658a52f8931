// The preprocess kernel of a fused backward, flash_hopper's or flash's: what it needs of each query before it
// begins. Roofline: o and dO once in.
#pragma once

#include "ops/attention/flash/tiles.cuh"
#include "ops/attention/hopper/backward_tile_scheduler.h"
#include "ops/attention/hopper/backward_workspace.h"
#include "ops/cuda_device/pdl.cuh"

namespace kiln::hopper {

using flash::HeadRows;
using flash::kLog2E;

// delta, and lse as the backward wants it, for rows up to `padded`; eight threads to a query. Also sets the
// semaphores that the backward begins with to zero.
template <class T>
struct DeltaParams {
  AttentionProblem p;
  HeadRows<const T> o, dout;
  const float* lse;
  float *lse2, *delta;
  int padded;
  int* counters;
  int64_t counter_count;
  SeqlenInfo z;
  Sequences sequences;
  int queries;  // of a tile
};

// Of a backward whose delta, lse and semaphores lie in its workspace.
template <class T>
DeltaParams<T> delta_params(const AttentionBackward& b, const BackwardWorkspace& w,
                            const HeadRows<const T>& o, const HeadRows<const T>& dout) {
  std::byte* memory = b.workspace.raw();
  return {.p = b.p,
          .o = o,
          .dout = dout,
          .lse = b.lse.data<float>(),
          .lse2 = reinterpret_cast<float*>(memory + w.lse2),
          .delta = reinterpret_cast<float*>(memory + w.delta),
          .padded = static_cast<int>(w.padded),
          .counters = reinterpret_cast<int*>(memory + w.counters),
          .counter_count = w.counter_count,
          .z = SeqlenInfo(b.p),
          .sequences = b.sequences,
          .queries = static_cast<int>(w.queries)};
}

// kVectorizable: rows of o and dO are whole, aligned vectors of 16 bytes.
template <class T, bool kVectorizable = true>
__global__ void __launch_bounds__(256) delta_kernel(const __grid_constant__ DeltaParams<T> a) {
  pdl_launch_dependents();
  const AttentionProblem& p = a.p;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x, at = thread / 8;
  for (int64_t c = thread; c < a.counter_count; c += static_cast<int64_t>(gridDim.x) * 256) a.counters[c] = 0;
  const int64_t head = at / a.padded;
  if (head >= p.batches() * p.H) return;  // all eight threads of it
  const int place = static_cast<int>(at % a.padded);
  SeqlenInfo z = a.z;
  if (p.varlen) z.enter_query_tile(p, a.sequences, 1, a.queries, place / a.queries);
  const int D = static_cast<int>(p.D), i = place - z.first_stat;
  const bool exists = i >= 0 && i < z.Tq;
  float sum = 0;
  if (exists) {
    const T* o = a.o.at(head / p.H, head % p.H, D, z.first_query + i);
    const T* dout = a.dout.at(head / p.H, head % p.H, D, z.first_query + i);
    if constexpr (kVectorizable) {
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
  const float lse = exists ? a.lse[head * p.query_rows() + z.first_query + i] : -INFINITY;
  a.delta[at] = sum;
  a.lse2[at] = lse == -INFINITY ? INFINITY : lse * kLog2E;
}

}  // namespace kiln::hopper
