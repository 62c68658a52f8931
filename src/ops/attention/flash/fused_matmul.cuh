// The mask and the matmuls of flash's fused backward, beside those of ampere.cuh.
#pragma once

#include "ops/attention/flash/fused_params.cuh"

namespace kiln::flash {

// Which pairs of a tile's queries and a key block's keys are seen.
struct SeenPairs {
  int diagonal, queries, keys;

  __device__ SeenPairs(const SeqlenInfo& z, int i0, int j0)
      : diagonal(z.causal ? i0 - j0 + z.ahead : 1 << 20), queries(z.Tq - i0), keys(z.Tk - j0) {}
  __device__ bool all(int block) const { return queries >= kTile && keys >= block && diagonal >= block - 1; }
  __device__ bool operator()(int query, int key) const {
    return key <= query + diagonal && query < queries && key < keys;
  }
};

// The non-finite slow path: out += P X over kCount rows of x from `first` on, and its channels from `channel`
// on, leaving out every pair that is not seen, since a masked value must not reach the sum even as 0 * NaN.
// prob(row, r) is P.
template <int kCount, int kN, SharedTile Tile, std::invocable<int, int> Prob, SeenPredicate Seen>
__device__ void gemm_seen(FragAcc (&out)[kN], const Tile& x, int first, int channel, Prob prob, Seen seen) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
#pragma unroll 1
  for (int r = 0; r < kCount; ++r) {
    const float low = prob(g, r), high = prob(g + 8, r);
    const bool low_seen = seen(g, r), high_seen = seen(g + 8, r);
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const auto* two = x.at(first + r, channel + n * 8 + 2 * q);
      const float x0 = static_cast<float>(two[0]), x1 = static_cast<float>(two[1]);
      if (low_seen) out[n].at[0] += low * x0, out[n].at[1] += low * x1;
      if (high_seen) out[n].at[2] += high * x0, out[n].at[3] += high * x1;
    }
  }
}

// The same with P^T or dS^T of the warp's keys in shared memory, from query `first` on.
template <int kCount, int kM, int kN, SharedTile Probs, SharedTile Tile>
__device__ void gemm_smem_seen(FragAcc (&out)[kM][kN], const Probs& probs, const Tile& x,
                               const SeenPairs& seen, int key, int first, int channel) {
  __syncwarp();
#pragma unroll
  for (int strip = 0; strip < kM; ++strip) {
    const int row = key + 16 * strip;
    gemm_seen<kCount>(
        out[strip], x, first, channel,
        [&](int k, int query) { return static_cast<float>(*probs.at(row + k, first + query)); },
        [&](int k, int query) { return seen(first + query, row + k); });
  }
  __syncwarp();
}

// A warp's [16 kM, 8 kN] accumulators (P^T or dS^T) to the tile, from this row and column on, rounded.
template <SharedTile Tile, int kM, int kN>
__device__ void store_scores(Tile& tile, int row, int column, const FragAcc (&sums)[kM][kN]) {
  using T = std::remove_reference_t<decltype(*tile.at(0, 0))>;
  const int lane = threadIdx.x % 32, g = lane / 4, col = lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const FragAcc& x = sums[m][n];
      T* to = tile.at(row + 16 * m + g, column + n * 8 + col);
      *reinterpret_cast<uint32_t*>(to) = two_of(x.at[0], x.at[1], T{});
      *reinterpret_cast<uint32_t*>(to + 8 * (tile.at(1, 0) - tile.at(0, 0))) = two_of(x.at[2], x.at[3], T{});
    }
  }
}

// sums[.][n] += A X for X's 16 rows from `row` on, and its channels from `channel` on, 8 at a time.
template <class T, int kM, int kN, int kD, int kRows>
__device__ void mma_columns(FragAcc (&sums)[kM][kN], const FragA (&a)[kM], const PaddedTile<T, kD, kRows>& x,
                            int row, int channel) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < kN; n += 2) {
    uint32_t w[4];
    const T* from = x.at(row + lane % 16, channel + n * 8 + lane / 16 * 8);
    if (n + 1 < kN)
      ldmatrix_x4_trans(w, from);
    else
      ldmatrix_x2_trans(w[0], w[1], from);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      mma_m16n8k16<T>(sums[m][n], a[m], {{w[0], w[1]}});
      if (n + 1 < kN) mma_m16n8k16<T>(sums[m][n + 1], a[m], {{w[2], w[3]}});
    }
  }
}

// A step's part of dv or dk: P^T or dS^T of the warp's keys, from shared memory, times rows of x.
template <class T, int kM, int kN, int kD, int kKeys>
__device__ void gemm_smem(FragAcc (&sums)[kM][kN], const PaddedTile<T, kTile, kKeys>& probs, int key,
                          const PaddedTile<T, kD>& x, int channel) {
#pragma unroll
  for (int k = 0; k < kTile; k += 16) {
    FragA a[kM];
#pragma unroll
    for (int m = 0; m < kM; ++m) a[m] = Ampere::load_a(probs, key + 16 * m, k);
    mma_columns(sums, a, x, k, channel);
  }
}

// Sixteen queries of a step's dq: dS^T, transposed as it is read, times the key block's keys.
template <class T, int kN, int kD, int kKeys>
__device__ void gemm_tn(FragAcc (&dq)[1][kN], const PaddedTile<T, kTile, kKeys>& ds, int query,
                        const PaddedTile<T, kD, kKeys>& keys, int channel) {
  const int lane = threadIdx.x % 32;
#pragma unroll 4
  for (int k = 0; k < kKeys; k += 16) {
    FragA a[1];
    ldmatrix_x4_trans(a[0].word, ds.at(k + lane / 16 * 8 + lane % 8, query + lane / 8 % 2 * 8));
    mma_columns(dq, a, keys, k, channel);
  }
}

}  // namespace kiln::flash
