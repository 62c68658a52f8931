// Which queries a block of flash_hopper's forward has, one part after the other. Blocks that are in the GPU
// at the same time should read the same keys and values: at 600 TFLOP/s a block of 128 queries reads 58 GB/s
// of them, 132 such blocks more than the memory gives. And under a mask long parts must come first, and long
// and short ones in turn. So heads are taken some at a time, and of these the last queries, which see the
// most keys, of all heads first. (H200, 256 heads of 128, 1024 tokens, no mask: 460 TFLOP/s with a head to
// each block, 570 with this and parts in one row.)
#pragma once

#include "ops/attention/cuda_hopper_walk.h"

namespace kiln::hopper {

struct Parts {
  int tiles;     // of a head's queries; places for them where lengths vary
  int heads;     // B * H; H where lengths vary
  int together;  // heads that are worked on at the same time

  Parts(const AttentionProblem& p, int queries, int blocks)
      : tiles(static_cast<int>(p.varied ? tile_places(p.all_queries, p.B, queries)
                                        : (p.Tq + queries - 1) / queries)),
        heads(static_cast<int>(p.batches() * p.H)) {
    constexpr int64_t kStaysInCache = 24 << 20;  // bytes of keys and values; the L2 has 50 MiB
    constexpr int kBlocksAHead = 4;
    const int64_t bytes = 4 * p.batches() * p.Hkv * p.key_rows() * p.D;
    together = bytes <= kStaysInCache ? heads : blocks / kBlocksAHead;
    if (together > heads) together = heads;
    if (together < 1) together = 1;
  }
  KILN_HD int count() const { return tiles * heads; }

  struct Place {
    int head, tile;
  };
  KILN_HD Place place(int number) const {
    const int before = number / (together * tiles) * together;
    const int here = heads - before < together ? heads - before : together, rest = number - before * tiles;
    return {before + rest % here, tiles - 1 - rest / here};
  }
};

// A part of the work: some queries of one head.
template <int kQueries, int kKeys>
struct QueryPart {
  int h, b, hkv;
  int first;  // query
  int steps;  // tiles of keys that any of its queries sees; one where none sees any
  int whole;  // of them, tiles that all see whole

  QueryPart() = default;
  KILN_HD QueryPart(const Sizes& z, const Parts& all, int number) {
    const Parts::Place place = all.place(number);
    first = (place.tile - z.first_tile) * kQueries;
    h = place.head % z.H;
    b = place.head / z.H;
    hkv = h / z.group;
    const int last = first + kQueries < z.Tq ? first + kQueries - 1 : z.Tq - 1;
    steps = (z.visible(last) + kKeys - 1) / kKeys;
    if (steps == 0) steps = 1;
    whole = z.visible(first) / kKeys;
  }
};

// The number of a block's part in round r: to and fro, so that who had a long one has a short one next.
KILN_HD inline int part_number(int block, int blocks, int r) {
  return r * blocks + (r % 2 == 0 ? block : blocks - 1 - block);
}

}  // namespace kiln::hopper
