// The matmuls of the tiled attention kernels on the tensor cores, in TF32: operands are rounded to 11 bits,
// sums are fp32. A sum over k does not depend on which k is which, so the places of the instruction's k are
// given to whatever the lane has at hand: in the second matmul those are its own two neighbouring scores,
// and no word changes its thread.
#pragma once

#include "ops/attention/tiled/tiles.cuh"

namespace kiln::tiled {

// sums = A X^T. One word at a time: the padding of a tile's rows puts the eight rows and four channels that a
// warp reads in different banks.
template <TileShape kShape, RowsOfFours A, RowsOfFours X>
__device__ void tf32_gemm_nt(Values<kShape>& sums, const A& a, const X& x, const Lane<kShape>& lane, int D) {
#pragma unroll
  for (int i = 0; i < kShape.per_lane; ++i) {
#pragma unroll
    for (int j = 0; j < kShape.columns / kShape.lanes; ++j) sums[i][j] = 0;
  }
#pragma unroll 1                                // more words at hand would spill the sums of wide heads
  for (int first = 0; first < D; first += 8) {  // past D both sides are zeros; all lanes go as far
    const int c = first + lane.x;
    FragA left[kShape.per_lane / 2];
#pragma unroll
    for (int m = 0; m < kShape.per_lane / 2; ++m) {
      left[m] = {{as_tf32(a.row[lane.row(2 * m)][c]), as_tf32(a.row[lane.row(2 * m + 1)][c]),
                  as_tf32(a.row[lane.row(2 * m)][c + 4]), as_tf32(a.row[lane.row(2 * m + 1)][c + 4])}};
    }
#pragma unroll
    for (int n = 0; n < kShape.columns / 8; ++n) {
      const auto& row = x.row[8 * n + lane.y];
      const FragB right{{as_tf32(row[c]), as_tf32(row[c + 4])}};
#pragma unroll
      for (int m = 0; m < kShape.per_lane / 2; ++m) {
        float(&low)[kShape.columns / kShape.lanes] = sums[2 * m];
        float(&high)[kShape.columns / kShape.lanes] = sums[2 * m + 1];
        mma_m16n8k8_tf32(low[2 * n], low[2 * n + 1], high[2 * n], high[2 * n + 1], left[m], right);
      }
    }
  }
}

// Whether all values of the tile are finite; the block's answer, with a barrier.
template <class T, int kWidth, int kRows>
__device__ bool all_finite(const Tile<T, kWidth, kRows>& tile) {
  bool finite = true;
  for (int i = threadIdx.x; i < kRows * kWidth; i += static_cast<int>(blockDim.x)) {
    const float v = static_cast<float>(tile.row[i / kWidth][i % kWidth]);
    finite &= v - v == 0;
  }
  return __syncthreads_and(finite) != 0;
}

// The non-finite slow path: out += P X leaving out pairs that are not seen, by plain multiply-adds. Taken
// only where a masked tile holds something that is not finite.
template <TileShape kShape, RowsOfFours X, flash::SeenPredicate S>
__device__ void gemm_nn_seen(Outputs<kShape>& out, const ScoreTile<kShape>& probs, const X& x,
                             const Lane<kShape>& lane, const S& seen) {
#pragma unroll
  for (int m = 0; m < kQuads<kShape>; ++m) {
    float4 more[kShape.per_lane] = {};
#pragma unroll 1  // a loop of few registers, or the fast path would pay for it with spilled sums
    for (int k = 0; k < kShape.columns; ++k) {
      const float* row = &x.row[k][lane.channel(m)];
#pragma unroll
      for (int i = 0; i < kShape.per_lane; ++i) {
        if (seen(lane.row(i), k))
          add_scaled(more[i], probs.row[lane.row(i)][k], {row[0], row[1], row[8], row[9]});
      }
    }
#pragma unroll
    for (int i = 0; i < kShape.per_lane; ++i) add_scaled(out.at[i][m], 1, more[i]);
  }
}

// out += P X, P being the warp's values.
template <TileShape kShape, RowsOfFours X, flash::SeenPredicate S>
__device__ void tf32_gemm_nn(bool masked, Outputs<kShape>& out, ScoreTile<kShape>& probs,
                             const Values<kShape>& values, const X& x, const Lane<kShape>& lane,
                             const S& seen) {
  if (masked && !all_finite(x)) {
    share_scores(probs, values, lane);
    return gemm_nn_seen<kShape>(out, probs, x, lane, seen);
  }
#pragma unroll
  for (int n = 0; n < kShape.columns / 8; ++n) {
    FragA left[kShape.per_lane / 2];
#pragma unroll
    for (int m = 0; m < kShape.per_lane / 2; ++m) {
      left[m] = {{as_tf32(values[2 * m][2 * n]), as_tf32(values[2 * m + 1][2 * n]),
                  as_tf32(values[2 * m][2 * n + 1]), as_tf32(values[2 * m + 1][2 * n + 1])}};
    }
    const auto &first = x.row[8 * n + 2 * lane.x], &second = x.row[8 * n + 2 * lane.x + 1];
#pragma unroll
    for (int quad = 0; quad < kQuads<kShape>; ++quad) {
      const int c = 16 * quad + lane.y;
      const FragB near{{as_tf32(first[c]), as_tf32(second[c])}};
      const FragB far{{as_tf32(first[c + 8]), as_tf32(second[c + 8])}};
#pragma unroll
      for (int m = 0; m < kShape.per_lane / 2; ++m) {
        float4 &low = out.at[2 * m][quad], &high = out.at[2 * m + 1][quad];
        mma_m16n8k8_tf32(low.x, low.y, high.x, high.y, left[m], near);
        mma_m16n8k8_tf32(low.z, low.w, high.z, high.w, left[m], far);
      }
    }
  }
}

}  // namespace kiln::tiled
