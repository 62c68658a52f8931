// The tiles of flash_hopper, and what they take of a multiprocessor: the kernels are made for these. Forward
// has several shapes of block for each width of head, of which one is the default for a problem and another
// may be chosen by measurement (`kiln tune attention`); backward has one.
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
  int groups;  // warpgroups, of 64 queries each; one more fetches
  int keys;    // of a tile
  int stages;  // tiles of keys, and of values, that are held at once

  constexpr int queries() const { return 64 * groups; }
  constexpr int threads() const { return 128 * (1 + groups); }
  // A thread may have so many; those that hold its share of o, of the scores and of the 16-bit probabilities.
  constexpr int registers() const { return groups == 2 ? 240 : 160; }
  constexpr int held_registers() const { return width / 2 + keys / 2 + keys / 4; }
  // Queries of two parts, keys and values, 64 channels at a time; and the signals.
  constexpr std::size_t bytes() const {
    const int halves = (width + 63) / 64, rows = 2 * queries() + 2 * stages * keys, signals = 4 + 4 * stages;
    const std::size_t row_bytes = 128,
                      used = static_cast<std::size_t>(halves) * row_bytes * static_cast<std::size_t>(rows) +
                             static_cast<std::size_t>(signals) * 8;
    return (used + 1023) / 1024 * 1024;
  }
  friend constexpr bool operator==(const ForwardTiles&, const ForwardTiles&) = default;
};

// What is compiled. Not here, because the compiler spills: at 128 channels 144 keys (20 bytes), 160 (12), and
// three warpgroups even with 64 (104); at 80, three with 128 (48). Not for shared memory: 176 keys at 80 or
// 128 channels, 240 KiB with the queries of two parts.
constexpr ForwardTiles kForwardTiles[] = {
    {64, 2, 128, 2}, {64, 3, 128, 2}, {64, 2, 64, 2},  {64, 2, 176, 2},  {64, 3, 96, 2},  {80, 2, 128, 2},
    {80, 3, 96, 2},  {80, 2, 64, 2},  {80, 2, 160, 2}, {128, 2, 128, 2}, {128, 2, 96, 2}, {128, 2, 64, 3},
};

// Without a measured choice. Three warpgroups hide more of the exponentials, of which narrow heads have the
// most; two fill the GPU better where a head is short (H200, 32 heads of 64: 0.90x at 1024 queries, 1.05x at
// 2048, 1.16x at 16384).
constexpr ForwardTiles default_forward_tiles(int64_t D, int64_t queries) {
  const int width = static_cast<int>(hopper_width(D));
  return {width, width == 64 && queries >= 2048 ? 3 : 2, 128, 2};
}

constexpr bool are_forward_tiles(const ForwardTiles& wanted) {
  for (const ForwardTiles& t : kForwardTiles) {
    if (t == wanted) return true;
  }
  return false;
}

constexpr bool forward_tiles_fit() {
  constexpr std::size_t kBlockBytes = std::size_t{227} * 1024;
  // Addresses, running maxima and sums take no less; whether more is needed the compiler's warnings tell.
  constexpr int kForTheRest = 32;
  for (const ForwardTiles& t : kForwardTiles) {
    // Products take keys 16 at a time; a swizzled tile is whole groups of 8 rows.
    if (t.keys % 16 != 0 || t.groups < 2 || t.groups > 3 || t.stages < 2) return false;
    if (t.bytes() > kBlockBytes || t.held_registers() + kForTheRest > t.registers()) return false;
  }
  return true;
}
static_assert(forward_tiles_fit());
static_assert(are_forward_tiles(default_forward_tiles(64, 1)) &&
              are_forward_tiles(default_forward_tiles(64, 2048)) &&
              are_forward_tiles(default_forward_tiles(80, 1)) &&
              are_forward_tiles(default_forward_tiles(128, 1)));

}  // namespace kiln::hopper
