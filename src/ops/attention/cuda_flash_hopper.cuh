// Flash attention's products by wgmma: the tensor cores read tiles from shared memory themselves, so a
// warpgroup of four warps spends registers on sums alone.
#pragma once

#include "ops/attention/cuda_flash_tiles.cuh"
#include "ops/cuda_device/wgmma.cuh"

namespace kiln::flash {

// Columns of 16 bytes: eight channels of all rows, then the next eight. Any eight rows of one are a block of
// 128 bytes, which is what the tensor cores read, along the rows or across them.
template <class T, int kD, int kRows = kTile>
struct ColumnTile {
  static constexpr int kRowCount = kRows, kWidth = kD;
  static constexpr int kBlockBytes = 128;  // from eight rows to the next eight
  static constexpr int kColumnBytes =
      kRows * 8 * static_cast<int>(sizeof(T));  // from eight channels to the next
  T column[kD / 8][kRows][8];

  __device__ T* at(int r, int c) { return &column[c / 8][r][c % 8]; }
  __device__ const T* at(int r, int c) const { return &column[c / 8][r][c % 8]; }
  // Eight threads write one block, and the next eight its neighbour across, so that together they read whole
  // sectors of 32 bytes from global memory and meet no bank twice.
  __device__ static int row_of(int i) { return i / 16 % (kRows / 8) * 8 + i % 8; }
  __device__ static int channel_of(int i) { return (i / 16 / (kRows / 8) * 2 + i / 8 % 2) * 8; }
};

struct Hopper {
  template <class T, int kD, int kRows = kTile>
  using Tile = ColumnTile<T, kD, kRows>;
  template <int kD>
  static constexpr int kStrips = 1;  // of a warp: the instruction gives it 16 rows

  __device__ static void show() { show_to_products(); }
  template <class... Sums>
  __device__ static void finish(Sums&... sums) {
    close_products();
    wait_for_products();
    (settle(sums[0]), ...);
  }

  // sums += A X^T for the tile's 64 rows: A is [64, kD], the rows of `left` that this warp's group has.
  template <int kM, class T, int kD, int kRows>
  __device__ static void multiply_rows(StripSums<kM>& sums, const ColumnTile<T, kD, kRows>& left,
                                       int first_row, const ColumnTile<T, kD>& x) {
    using Left = ColumnTile<T, kD, kRows>;
    using Right = ColumnTile<T, kD>;
    const uint64_t a = operand_at(left.at(first_row / 64 * 64, 0), Left::kColumnBytes, Left::kBlockBytes);
    const uint64_t b = operand_at(x.at(0, 0), Right::kColumnBytes, Right::kBlockBytes);
    begin_products();
#pragma unroll
    for (int k = 0; k < kD / 16; ++k) {  // two columns of each at a time
      multiply_add<T>(sums[0], a + k * 2 * Left::kColumnBytes / 16, b + k * 2 * Right::kColumnBytes / 16,
                      k > 0);
    }
  }

  // out += W X for the tile's kD channels: W is [64, 64], the group's own sums.
  template <class T, int kM, int kD>
  __device__ static void multiply_columns(TileSums (&out)[kM][kD / 8], const StripSums<kM>& weights,
                                          const ColumnTile<T, kD>& x) {
    using Right = ColumnTile<T, kD>;
    const uint64_t b = operand_at(x.at(0, 0), Right::kBlockBytes, Right::kColumnBytes);
    TileA a[kNTiles / 2];
#pragma unroll
    for (int k = 0; k < kNTiles / 2; ++k) a[k] = as_a<T>(weights[0][2 * k], weights[0][2 * k + 1]);
    begin_products();
#pragma unroll
    for (int k = 0; k < kNTiles / 2; ++k)  // sixteen rows at a time
      multiply_add<T>(out[0], a[k], b + k * 2 * Right::kBlockBytes / 16);
  }
};

}  // namespace kiln::flash
