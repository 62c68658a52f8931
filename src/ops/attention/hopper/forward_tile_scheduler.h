// The forward tile scheduler of flash_hopper: which work tiles (some queries of one head) a persistent CTA
// has, one after the other. CTAs that are resident at the same time should read the same keys and values: at
// 600 TFLOP/s a CTA with 128 queries reads 58 GB/s of them, 132 such CTAs more than the memory gives. And
// under a mask long tiles must come first, and a long one after a short one. So heads are taken some at a
// time, and of these the last queries, which see the most keys, of all heads first. (H200, 256 heads of 128,
// 1024 tokens, no mask: 460 TFLOP/s with a head to each CTA, 570 with this and the tiles of a CTA in one
// pipeline.)
#pragma once

#include "ops/attention/hopper/seqlen_info.h"

namespace kiln::hopper {

struct ForwardTileScheduler {
  int tiles;          // of a head's queries; places for them where lengths vary
  int heads;          // B * H; H where lengths vary
  int heads_at_once;  // heads that are worked on at the same time

  ForwardTileScheduler(const AttentionProblem& p, int queries, int ctas)
      : tiles(static_cast<int>(p.varlen ? tile_places(p.all_queries, p.B, queries)
                                        : (p.Tq + queries - 1) / queries)),
        heads(static_cast<int>(p.batches() * p.H)) {
    constexpr int64_t kStaysInCache = 24 << 20;  // bytes of keys and values; the L2 has 50 MiB
    constexpr int kCtasAHead = 4;
    const int64_t bytes = 4 * p.batches() * p.Hkv * p.key_rows() * p.D;
    heads_at_once = bytes <= kStaysInCache ? heads : ctas / kCtasAHead;
    if (heads_at_once > heads) heads_at_once = heads;
    if (heads_at_once < 1) heads_at_once = 1;
  }
  KILN_HD int count() const { return tiles * heads; }

  struct Place {
    int head, tile;
  };
  KILN_HD Place place(int number) const {
    const int before = number / (heads_at_once * tiles) * heads_at_once;
    const int here = heads - before < heads_at_once ? heads - before : heads_at_once,
              rest = number - before * tiles;
    return {before + rest % here, tiles - 1 - rest / here};
  }
};

// Some queries of one head, and the key tiles they see.
template <int kQueries, int kKeys>
struct WorkTile {
  int h, b, hkv;
  int first;  // query
  int steps;  // tiles of keys that any of its queries sees; one where none sees any
  int whole;  // of them, tiles that all see whole: these need no mask

  WorkTile() = default;
  KILN_HD WorkTile(const SeqlenInfo& z, const ForwardTileScheduler& all, int number) {
    const ForwardTileScheduler::Place place = all.place(number);
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

// The number of a CTA's work tile in round r, in serpentine order: whoever had a long one has a short one
// next.
KILN_HD inline int serpentine_index(int cta, int ctas, int r) {
  return r * ctas + (r % 2 == 0 ? cta : ctas - 1 - cta);
}

}  // namespace kiln::hopper
