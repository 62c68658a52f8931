// The tile table of flash_hopper, and what tiles take of a multiprocessor: the kernels are made for these.
// Forward has several shapes of block for each width of head, of which one is the default for a problem and
// another may be chosen by measurement (`kiln tune attention`); backward has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace kiln {

// Channels of the tiles that hold heads of width D, and the queries of backward's tiles.
constexpr int64_t hopper_width(int64_t D) { return D <= 64 ? 64 : D <= 80 ? 80 : 128; }
constexpr int64_t hopper_queries(int64_t width) { return width <= 64 ? 128 : 64; }

}  // namespace kiln

namespace kiln::hopper {

// A block of the forward pass.
struct ForwardTiles {
  int width;   // channels that fit; narrower heads are padded with zeros
  int groups;  // consumer warpgroups, of 64 queries each; one more is the producer
  int keys;    // of a tile
  int stages;  // tiles of keys, and of values, that are held at once

  constexpr int queries() const { return 64 * groups; }
  constexpr int threads() const { return 128 * (1 + groups); }
  // Of a multiprocessor at once. Blocks of one warpgroup are for problems that would leave some without work.
  constexpr int blocks() const { return groups == 1 ? 2 : 1; }
  // A thread may have so many; and those that hold its part of o, of the scores and of the 16-bit
  // probabilities.
  constexpr int consumer_registers() const { return groups == 1 ? 208 : groups == 2 ? 240 : 160; }
  constexpr int producer_registers() const { return groups == 1 ? 40 : groups == 2 ? 24 : 32; }
  constexpr int held_registers() const { return width / 2 + keys / 2 + keys / 4; }
  // `held` work tiles' queries, keys and values, 64 channels at a time; and mbarriers, and marks of a few
  // bytes.
  constexpr std::size_t bytes_with(int held) const {
    const int halves = (width + 63) / 64, rows = held * queries() + 2 * stages * keys;
    const int small = (2 * held + 4 * stages) * 8 + held * 24 + 4 * groups * 8;
    return (static_cast<std::size_t>(halves * 128 * rows + small) + 1023) / 1024 * 1024;
  }
  constexpr bool fits(int held) const {
    return bytes_with(held) <= std::size_t{228} * 1024 / static_cast<std::size_t>(blocks()) - 1024;
  }
  // Work tiles whose queries are held: with three, the next one's come while the last one's o leaves.
  constexpr int q_stages() const { return fits(3) ? 3 : 2; }
  constexpr std::size_t bytes() const { return bytes_with(q_stages()); }
  friend constexpr bool operator==(const ForwardTiles&, const ForwardTiles&) = default;
};

// What is compiled. Not here, because the compiler spills: at 128 channels 144 keys (20 bytes), 160 (12), and
// three warpgroups even with 64 (104); at 80, three with 128 (48) or 96 (24). Not for shared memory: 176 keys
// at 80 or 128 channels, 240 KiB with the queries of two work tiles.
constexpr ForwardTiles kForwardTiles[] = {
    {64, 2, 128, 2}, {64, 3, 128, 2}, {64, 2, 64, 2},  {64, 2, 176, 2},  {64, 3, 96, 2},
    {80, 2, 128, 2}, {80, 2, 64, 2},  {80, 2, 160, 2}, {128, 2, 128, 2}, {128, 2, 96, 2},
    {128, 2, 64, 3}, {64, 1, 128, 2}, {64, 1, 64, 2},  {80, 1, 64, 2},   {128, 1, 64, 2},
};

// Without a measured choice. Three warpgroups hide more of the exponentials, of which narrow heads have
// the most; two fill the GPU better where a head is short (H200, 32 heads of 64: 0.84x at 1024 queries, 1.00x
// at 4096, 1.10x at 16384); and one, where there is little to do (4 x 12 heads of 512 queries 1.08x, 4 x 25
// 1.02x, 32 x 12 of 1024 0.98x). `rows`: queries of all heads.
constexpr ForwardTiles default_forward_tiles(int64_t D, int64_t queries, int64_t rows) {
  const int width = static_cast<int>(hopper_width(D));
  if (width == 64 && rows <= 64 << 10) return {width, 1, 128, 2};
  return {width, width == 64 && queries >= 2048 ? 3 : 2, 128, 2};
}

constexpr bool are_forward_tiles(const ForwardTiles& wanted) {
  for (const ForwardTiles& t : kForwardTiles) {
    if (t == wanted) return true;
  }
  return false;
}

constexpr bool forward_tiles_fit() {
  // Addresses, running maxima and sums take no less; whether more is needed the compiler's warnings tell.
  constexpr int kForTheRest = 32;
  for (const ForwardTiles& t : kForwardTiles) {
    // wgmma takes keys 16 at a time; a swizzled tile is whole groups of 8 rows.
    if (t.keys % 16 != 0 || t.groups < 1 || t.groups > 3 || t.stages < 2) return false;
    if (!t.fits(t.q_stages()) || t.held_registers() + kForTheRest > t.consumer_registers()) return false;
  }
  return true;
}
static_assert(forward_tiles_fit());
static_assert(are_forward_tiles(default_forward_tiles(64, 1, 1)) &&
              are_forward_tiles(default_forward_tiles(64, 1, 1 << 20)) &&
              are_forward_tiles(default_forward_tiles(64, 2048, 1 << 20)) &&
              are_forward_tiles(default_forward_tiles(80, 1, 1)) &&
              are_forward_tiles(default_forward_tiles(128, 1, 1)));

}  // namespace kiln::hopper
