// The two products of the tiled attention kernels, a warp at a time, by plain multiply-adds; or on to the
// tensor cores, where a shape is theirs.
#pragma once

#include "ops/attention/tiled/tf32_matmul.cuh"
#include "ops/attention/tiled/tiles.cuh"

namespace kiln::tiled {

// sums = A X^T: the lane's rows of A, its columns are rows of X. Channels past D are zeros on both sides.
template <TileShape kShape, class A, class X>
__device__ void multiply_rows(Values<kShape>& sums, const A& a, const X& x, const Lane<kShape>& lane, int D) {
  if constexpr (kShape.tensor_cores()) return tf32_rows<kShape>(sums, a, x, lane, D);
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

// out += W X over the tile's columns, with W as the warp has shared it. With kMasked a pair that is not seen
// is left out: a masked value must not reach the sum even as 0 * NaN.
template <bool kMasked, TileShape kShape, class X, class S>
__device__ void multiply_shared(Outputs<kShape>& out, const Weights<kShape>& weights, const X& x,
                                const Lane<kShape>& lane, const S& seen) {
  constexpr int kRows = kShape.per_lane;
#pragma unroll 1
  for (int k = 0; k < kShape.columns; k += 4) {
    float4 w[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) w[i] = *reinterpret_cast<const float4*>(&weights.row[lane.row(i)][k]);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      float4 right[kQuads<kShape>];
#pragma unroll
      for (int m = 0; m < kQuads<kShape>; ++m) right[m] = x.four(k + n, lane.channel(m));
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (kMasked && !seen(lane.row(i), k + n)) continue;
#pragma unroll
        for (int m = 0; m < kQuads<kShape>; ++m) add_scaled(out.at[i][m], part(w[i], n), right[m]);
      }
    }
  }
}

// out += W X, W being the warp's values. `masked` is the same for all of the block.
template <TileShape kShape, class X, class S>
__device__ void multiply_columns(bool masked, Outputs<kShape>& out, Weights<kShape>& weights,
                                 const Values<kShape>& values, const X& x, const Lane<kShape>& lane,
                                 const S& seen) {
  if constexpr (kShape.tensor_cores()) {
    tf32_columns<kShape>(masked, out, weights, values, x, lane, seen);
  } else {
    share(weights, values, lane);
    masked ? multiply_shared<true, kShape>(out, weights, x, lane, seen)
           : multiply_shared<false, kShape>(out, weights, x, lane, seen);
  }
}

}  // namespace kiln::tiled
