// Which keys a block of flash_hopper's backward has, one after the other, and which queries it meets.
//
// Under a causal mask the first keys are seen by all queries and the last by few. So block a of a head's has
// two lots: a-th from the end, then a-th from the beginning; all blocks then make the same number of steps.
// The second lot adds to dq after the second lot of block a + 1, which therefore must be running: all of a
// head's blocks are in the GPU at once, and begin together. Where that cannot be, a block has one lot, and
// blocks are numbered as they start, the last keys first: then nobody waits for a later one.
#pragma once

#include "ops/attention/attention.h"

namespace kiln::hopper {

struct Sizes {  // of the problem, in 32 bits
  int Tq, Tk, H, Hkv, group, D;
  int ahead;  // Tk - Tq
  bool causal;
  float scale, scale_log2;

  explicit Sizes(const AttentionProblem& p)
      : Tq(static_cast<int>(p.Tq)),
        Tk(static_cast<int>(p.Tk)),
        H(static_cast<int>(p.H)),
        Hkv(static_cast<int>(p.Hkv)),
        group(static_cast<int>(p.group())),
        D(static_cast<int>(p.D)),
        ahead(Tk - Tq),
        causal(p.causal),
        scale(p.scale),
        scale_log2(p.scale * 1.4426950408889634f) {}
  KILN_HD int visible(int i) const {  // for a query that exists
    const int n = causal ? i + 1 + ahead : Tk;
    return n < 0 ? 0 : (n > Tk ? Tk : n);
  }
};

struct Lots {
  int lots;           // of a head
  int heads;          // B * Hkv
  int pairs;          // blocks of a head, two lots each; 0: one lot a block
  int heads_at_once;  // with pairs
  int64_t blocks;     // of the grid

  Lots(const AttentionProblem& p, int keys, int at_once) {
    lots = static_cast<int>((p.Tk + keys - 1) / keys);
    heads = static_cast<int>(p.B * p.Hkv);
    pairs = p.causal && p.Tq == p.Tk && lots > 1 && (lots + 1) / 2 <= at_once ? (lots + 1) / 2 : 0;
    heads_at_once = pairs == 0 ? 0 : at_once / pairs < heads ? at_once / pairs : heads;
    blocks = pairs == 0 ? int64_t{lots} * heads : int64_t{pairs} * heads_at_once;
  }
};

// The s-th lot of keys of a block. Queries are walked over head by head of the group, tile by tile.
template <int kKeys, int kQueries>
struct KeyLot {
  bool exists;
  int hkv, b, j;
  int first_tile, tiles;  // of queries that see it: from, and all there are
  int steps;

  KILN_HD KeyLot(const Sizes& z, const Lots& l, int block, int s) {
    int head;
    if (l.pairs == 0) {
      exists = s == 0;
      head = block / l.lots;
      j = l.lots - 1 - block % l.lots;
    } else {
      const int a = block % l.pairs;
      head = s / 2 * l.heads_at_once + block / l.pairs;
      exists = head < l.heads;
      j = s % 2 == 0 ? l.lots - 1 - a : a;
    }
    hkv = head % z.Hkv;
    b = head / z.Hkv;
    const int first_seen = z.causal && j * kKeys > z.ahead ? j * kKeys - z.ahead : 0;
    tiles = (z.Tq + kQueries - 1) / kQueries;
    first_tile = first_seen / kQueries;
    // The middle lot of an odd number is its block's first and second: the second time there is nothing to
    // do.
    const bool again = l.pairs > 0 && s % 2 == 1 && l.lots - 1 - j == j;
    steps = first_seen < z.Tq && !again ? (tiles - first_tile) * z.group : 0;
    done_before = again;
  }
  bool done_before;
};

// A step: a tile of queries of one head.
template <class Lot>
struct QueryWalk {
  int h, tile;
  KILN_HD QueryWalk(const Sizes& z, const Lot& at) : h(at.hkv * z.group), tile(at.first_tile) {}
  KILN_HD void next(const Lot& at) {
    if (++tile < at.tiles) return;
    tile = at.first_tile;
    ++h;
  }
};

}  // namespace kiln::hopper
