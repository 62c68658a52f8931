// The tiles of flash attention by mma.sync, and the shared memory they take: the kernels are made for these
// and the variant's refusals come from the same numbers. 64 keys to a tile for every width; a block's queries
// in forward and its keys in backward are what is left to choose. One table serves all GPUs since Ampere,
// whose multiprocessors differ in shared memory alone: 99 KiB hold heads up to 96 wide, 163 KiB up to 192,
// 227 KiB all.
#pragma once

#include <cstddef>
#include <iterator>

namespace kiln::flash {

constexpr int kTile = 64;  // keys of a tile, or queries of one that is walked over

// A block of backward's one kernel.
struct FlashKeys {
  int strips;  // of 16 keys, that a warp has
  int share;   // warps that have the same keys; see fused_params.cuh
};
// Where blocks of more keys would be too few to fill the GPU, or would not fit into its shared memory.
constexpr FlashKeys kFewKeys{1, 2};

struct FlashTiles {
  int width;        // channels that fit; narrower heads are padded with zeros
  int queries;      // of a block in the forward pass
  int few_queries;  // where blocks of that many would be too few to fill the GPU
  // No strips: dk and dv of wide heads are more sums than a warp has registers, and each gradient is made by
  // a kernel of its own, at the price of making the scores three times (eight matmuls for five).
  FlashKeys keys;

  constexpr bool fused() const { return keys.strips > 0; }
};

constexpr FlashTiles kFlashTiles[] = {
    {32, 128, 64, {2, 1}},  {64, 128, 64, {2, 1}}, {80, 128, 64, {2, 2}}, {96, 128, 64, {2, 2}},
    {128, 128, 64, {2, 2}}, {160, 64, 64, {}},     {192, 64, 64, {}},     {256, 64, 64, {}},
};
constexpr int kWidestHead = 256;

// Larger blocks read keys less often; too few of them would leave multiprocessors idle. `heads` of all
// sequences together. 132: the multiprocessors of an H200.
constexpr int flash_default_queries(const FlashTiles& t, long heads, long queries) {
  return heads * ((queries + t.queries - 1) / t.queries) < 2 * 132 ? t.few_queries : t.queries;
}

// Whether backward's blocks would leave multiprocessors idle. One key/value head's keys.
constexpr bool flash_few_keys(FlashKeys block, long kv_heads, long keys) {
  const long key_block = long{kTile} * block.strips;
  return kv_heads * ((keys + key_block - 1) / key_block) < 132;
}

// For heads of width D, at most kWidestHead.
constexpr FlashTiles flash_tiles(long D) {
  for (const FlashTiles& t : kFlashTiles) {
    if (D <= t.width) return t;
  }
  return kFlashTiles[std::size(kFlashTiles) - 1];
}

// Each row is followed by 16 bytes, so that the eight an ldmatrix reads lie in different banks.
constexpr std::size_t flash_rows_bytes(const FlashTiles& t, int rows) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(t.width + 8) * 2;
}

// Queries, and two tiles each of keys and values; and a strip of probabilities for each 16 queries.
constexpr std::size_t flash_forward_bytes(const FlashTiles& t) {
  return flash_rows_bytes(t, t.queries + 4 * kTile) +
         static_cast<std::size_t>(t.queries / 16 * 16 * (kTile + 2) * 2);
}

// In one kernel: keys and values stay, two times two tiles of queries come and go; a tile of dS, and of P
// where warps share keys; lse and delta of two tiles, and what a block knows of its sequence.
constexpr std::size_t flash_fused_backward_bytes(int width, FlashKeys block) {
  const int keys = kTile * block.strips;
  return flash_rows_bytes({width, 0, 0, {}}, 2 * keys + 4 * kTile) +
         static_cast<std::size_t>(block.share * keys * (kTile + 8) * 2 + 4 * kTile * 4 + 128);
}

// The least a GPU must have. In kernels of their own two tiles stay, two times two come and go;
// probabilities, lse and delta of two tiles, and a block's sequence.
constexpr std::size_t flash_backward_bytes(const FlashTiles& t) {
  if (t.fused()) return flash_fused_backward_bytes(t.width, kFewKeys);
  return flash_rows_bytes(t, 6 * kTile) +
         static_cast<std::size_t>(kTile * (kTile + 2) * 2 + 4 * kTile * 4 + 32);
}

constexpr std::size_t flash_bytes(const FlashTiles& t) {
  return flash_forward_bytes(t) > flash_backward_bytes(t) ? flash_forward_bytes(t) : flash_backward_bytes(t);
}

}  // namespace kiln::flash
