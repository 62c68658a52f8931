// The two matmuls of the tiled attention kernels, a warp at a time, by plain multiply-adds; or on to the
// tensor cores, where a shape is theirs.
#pragma once

#include "ops/attention/tiled/tf32_matmul.cuh"
#include "ops/attention/tiled/tiles.cuh"

namespace kiln::tiled {

// sums = A X^T: the lane's rows of A, its columns are rows of X. Channels past D are zeros on both sides.
template <TileShape kShape, RowsOfFours A, RowsOfFours X>
__device__ void gemm_nt(Values<kShape>& sums, const A& a, const X& x, const Lane<kShape>& lane, int D) {
  if constexpr (kShape.tensor_cores()) return tf32_gemm_nt<kShape>(sums, a, x, lane, D);
  constexpr int kRows = kShape.per_lane, kColumns = kShape.columns / kShape.lanes;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) sums[i][j] = 0;
  }
#pragma unroll 2
  for (int c = 0; c < D; c += 4) {
    float4 right[kColumns];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) right[j] = x.four(lane.column(j), c);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float4 left = a.four(lane.row(i), c);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) sums[i][j] += left.x * right[j].x;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) sums[i][j] += left.y * right[j].y;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) sums[i][j] += left.z * right[j].z;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) sums[i][j] += left.w * right[j].w;
    }
  }
}

// out += P X over the tile's columns, with P as the warp has shared it. With kMasked a pair that is not seen
// is left out: a masked value must not reach the sum even as 0 * NaN.
template <bool kMasked, TileShape kShape, RowsOfFours X, flash::SeenPredicate S>
__device__ void gemm_nn_smem(Outputs<kShape>& out, const ScoreTile<kShape>& probs, const X& x,
                             const Lane<kShape>& lane, const S& seen) {
  constexpr int kRows = kShape.per_lane;
#pragma unroll 1
  for (int k = 0; k < kShape.columns; k += 4) {
    float4 w[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) w[i] = *reinterpret_cast<const float4*>(&probs.row[lane.row(i)][k]);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      float4 right[kQuads<kShape>];
#pragma unroll
      for (int m = 0; m < kQuads<kShape>; ++m) right[m] = x.four(k + n, lane.channel(m));
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (kMasked && !seen(lane.row(i), k + n)) continue;
#pragma unroll
        for (int m = 0; m < kQuads<kShape>; ++m) add_scaled(out.at[i][m], component(w[i], n), right[m]);
      }
    }
  }
}

// out += P X, P being the warp's values. `masked` is the same for all of the block.
template <TileShape kShape, RowsOfFours X, flash::SeenPredicate S>
__device__ void gemm_nn(bool masked, Outputs<kShape>& out, ScoreTile<kShape>& probs,
                        const Values<kShape>& values, const X& x, const Lane<kShape>& lane, const S& seen) {
  if constexpr (kShape.tensor_cores()) {
    tf32_gemm_nn<kShape>(masked, out, probs, values, x, lane, seen);
  } else {
    share_scores(probs, values, lane);
    masked ? gemm_nn_smem<true, kShape>(out, probs, x, lane, seen)
           : gemm_nn_smem<false, kShape>(out, probs, x, lane, seen);
  }
}

}  // namespace kiln::tiled
