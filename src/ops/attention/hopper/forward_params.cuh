// What flash_hopper's forward kernel is given.
#pragma once

#include "ops/attention/hopper/forward_smem.cuh"

namespace kiln::hopper {

template <class T>
struct ForwardParams {
  AttentionProblem p;
  CUtensorMap q, k, v, o;                    // what TMA reads and writes
  HeadRows<const T> q_rows, k_rows, v_rows;  // the same, for the non-finite slow path
  HeadRows<T> o_rows;
  float* lse;  // [B, H, Tq]
  SeqlenInfo z;
  ForwardTileScheduler scheduler;
  Sequences sequences;

  // The number of the CTA's work tile in round r.
  __device__ static int number(int r) {
    return serpentine_index(static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), r);
  }
  __device__ int64_t stat(const SeqlenInfo& its, int b, int h, int i) const {  // the place of a query's lse
    return (b * p.H + h) * p.query_rows() + its.first_query + i;
  }
  template <ForwardBlockShape Shape>
  __device__ bool has_tile(int r) const {
    return Shape::kVarlen ? r == 0 : number(r) < scheduler.count();
  }
  template <ForwardBlockShape Shape>
  __device__ const SeqlenInfo& seqlen(const ForwardSmem<Shape>& m) const {
    if constexpr (Shape::kVarlen)
      return m.z;
    else
      return z;
  }
  template <ForwardBlockShape Shape>
  __device__ WorkTile<Shape::kQueries, Shape::kKeys> work_tile(const ForwardSmem<Shape>& m, int r) const {
    return {seqlen(m), scheduler, number(r)};
  }
};

}  // namespace kiln::hopper
