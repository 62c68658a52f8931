// Flash attention's matmuls by mma.sync: operands go from shared memory through registers (ldmatrix).
#pragma once

#include "ops/attention/flash/tiles.cuh"

namespace kiln::flash {

// Rows are kD channels and 16 bytes of padding apart, which spreads the eight rows that one ldmatrix reads
// over all banks (for every kD of flash_table.h).
template <class T, int kD, int kRows = kTile>
struct PaddedTile {
  static constexpr int kRowCount = kRows, kWidth = kD;
  T row[kRows][kD + 8];

  __device__ T* at(int r, int c) { return &row[r][c]; }
  __device__ const T* at(int r, int c) const { return &row[r][c]; }
  // Pack i of a tile, in the order in which threads load it.
  __device__ static int row_of(int i) { return i / (kD / 8); }
  __device__ static int channel_of(int i) { return i % (kD / 8) * 8; }
};

struct Ampere {
  template <class T, int kD, int kRows = kTile>
  using Tile = PaddedTile<T, kD, kRows>;

  // Strips of a warp in the forward pass. With two, each word of the other operand is read once for both;
  // with one, reading shared memory takes longer than the matmuls: heads of 128 went from 0.65x of
  // FlashAttention-2 to 0.9x. Two of wider heads would not fit in registers; and where 64 queries are a block
  // because there are few, two warps a block are not enough to hide anything (0.72x for 0.93x).
  template <int kD, int kQueries>
  static constexpr int kStrips = kD <= 64 || (kD <= 128 && kQueries > 64) ? 2 : 1;

  __device__ static void show() {}  // tiles are visible after a barrier
  template <class... Sums>
  __device__ static void finish(Sums&... /*sums*/) {}  // mma.sync is done when the call returns

  // The 16 x 16 tile of A whose first row and column are given.
  template <class T, int kD, int kRows>
  __device__ static FragA load_a(const PaddedTile<T, kD, kRows>& tile, int row, int col) {
    const int lane = threadIdx.x % 32;
    FragA a;
    ldmatrix_x4(a.word, tile.at(row + lane % 16, col + lane / 16 * 8));
    return a;
  }

  // sums[.][n] += A X^T for 8 kN of the tile's rows, 8 at a time: A is [16 kM, kD], here rows of `left`.
  template <int kM, int kN, class T, int kD, int kRows, int kXRows>
  __device__ static void gemm_nt(FragAcc (&sums)[kM][kN], const PaddedTile<T, kD, kRows>& left, int first_row,
                                 const PaddedTile<T, kD, kXRows>& x, int x_row = 0) {
    const int lane = threadIdx.x % 32;
    constexpr int kAtOnce = kD <= 128 ? kD / 16 : 4;  // words read ahead would spill the sums of wide heads
#pragma unroll kAtOnce
    for (int k = 0; k < kD; k += 16) {
      FragA a[kM];
#pragma unroll
      for (int m = 0; m < kM; ++m) a[m] = load_a(left, first_row + 16 * m, k);
#pragma unroll
      for (int n = 0; n < kN; n += 2) {
        uint32_t w[4];
        ldmatrix_x4(w, x.at(x_row + n * 8 + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8));
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          mma_m16n8k16<T>(sums[m][n], a[m], {{w[0], w[1]}});
          mma_m16n8k16<T>(sums[m][n + 1], a[m], {{w[2], w[3]}});
        }
      }
    }
  }

  // out[.][n] += P X for the tile's kD channels, 8 at a time: P is [16 kM, 8 kN], the warp's own
  // accumulators: probabilities, or the gradients of scores.
  template <class T, int kM, int kD, int kN, int kXRows>
  __device__ static void gemm_nn(FragAcc (&out)[kM][kD / 8], const FragAcc (&probs)[kM][kN],
                                 const PaddedTile<T, kD, kXRows>& x, int x_row = 0) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < kN; k += 2) {
      FragA a[kM];
#pragma unroll
      for (int m = 0; m < kM; ++m) a[m] = as_a<T>(probs[m][k], probs[m][k + 1]);
#pragma unroll
      for (int n = 0; n < kD / 8; n += 2) {
        uint32_t w[4];
        ldmatrix_x4_trans(w, x.at(x_row + k * 8 + lane % 16, n * 8 + lane / 16 * 8));
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          mma_m16n8k16<T>(out[m][n], a[m], {{w[0], w[1]}});
          mma_m16n8k16<T>(out[m][n + 1], a[m], {{w[2], w[3]}});
        }
      }
    }
  }
};

}  // namespace kiln::flash
