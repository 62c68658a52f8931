// What flash_hopper's backward kernels are given.
#pragma once

#include "ops/attention/hopper/backward_smem.cuh"

namespace kiln::hopper {

template <class T>
struct BackwardParams {
  AttentionProblem p;
  SeqlenInfo z;
  BackwardTileScheduler scheduler;
  CUtensorMap q, k, v, dout;                            // what TMA reads
  HeadRows<const T> q_rows, k_rows, v_rows, dout_rows;  // the same, for the non-finite slow path
  HeadRows<T> dq, dk, dv;                               // base null: not wanted
  const float *lse2, *delta;  // [B, H, padded]: lse times log2(e), Inf where a query sees nothing or is none
  int padded;
  float4* dq_accum;     // fp32, [B, H, tiles][a tile's sums in the order in which threads hold them]
  int64_t late_offset;  // how far behind these the late sums lie
  int* dq_semaphore;    // [B, H, tiles, 2]: how many contributions have been added, early and late
  int* ticket;          // numbers CTAs in the order in which they start; null where all start at once
  bool atomic;          // contributions to dq are added as they come, to zeros
  bool ctas_write_dq;   // else another kernel does

  Sequences sequences;

  template <BackwardBlockShape Shape>
  __device__ const SeqlenInfo& seqlen(const BackwardSmem<Shape>& m) const {
    if constexpr (Shape::kVarlen)
      return m.z;
    else
      return z;
  }
  __device__ NonFiniteGradients<T> non_finite(const SeqlenInfo& its) const {
    return {its, q_rows, k_rows, v_rows, dout_rows, lse2, delta, padded};
  }
};

// Of a tile of dq, among those of all heads.
__device__ inline int64_t dq_tile_index(const SeqlenInfo& z, const BackwardTileScheduler& l, int b, int h,
                                        int tile) {
  return static_cast<int64_t>(b * z.H + h) * l.query_tiles + z.first_tile + tile;
}

// Accumulators of eight columns that a warpgroup has of a step's dq; the last channels may be fewer.
template <BackwardBlockShape Shape>
__device__ constexpr int dq_fragments(int group) {
  return Shape::kD <= 64 || Shape::kD == 128 || group == 0 ? 8 : (Shape::kD - 64) / 8;
}

// Calls f with dq_fragments(group), as a constant.
template <BackwardBlockShape Shape, class F>
__device__ void with_dq_fragments(int group, F f) {
  if (dq_fragments<Shape>(1) == 8 || group == 0) return f(std::integral_constant<int, 8>{});
  if constexpr (dq_fragments<Shape>(1) != 8) f(std::integral_constant<int, dq_fragments<Shape>(1)>{});
}

}  // namespace kiln::hopper
