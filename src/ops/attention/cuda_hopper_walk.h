// Which keys a block of flash_hopper's (or flash's) backward has, which queries it meets and in what order;
// and with it the order in which shares of dq are added up. The order is fixed, so dq always has the same
// bits; and it is the order in which the blocks come by, one step apart, so nobody waits long.
//
//   paired   a causal mask: the first keys are seen by all queries, the last by few. Block a of a head has
//            the a-th lot of keys, then the a-th from the end, so all make the same number of steps. It takes
//            the first lot's queries from the diagonal on: those of lot j meet a tile a step after lot j + 1.
//            The second lot's it takes from the end back: lot j + 1 meets a tile a step after lot j. The two
//            orders run at the same time, so each has its own sums.
//   cyclic   no mask: lot j begins so many tiles before the end that each meets a tile after its neighbour.
//   single   everything else: one lot a block, numbered as blocks start; nobody waits for a block that has
//            not begun. The first keys come first, since under a mask they have the most queries, and all
//            walk from the last query back, so that lot j + 1 meets a tile a step after lot j. (From the
//            diagonal on, with the last and shortest lots first, one head of 65,536 ended with most of the
//            GPU idle.) Also for sequences whose lengths vary: their lots have the places of sequences.h,
//            and a block whose place is nobody's has no lot.
//
// In the first two, blocks of a head wait for each other, so they must all be in the GPU at once: as many
// heads as fit are worked on together, then the next. When a block is done with a head it writes out some
// tiles of dq, those that the others were done with long ago. With single another kernel does that.
#pragma once

#include "ops/attention/sequences.h"

namespace kiln::hopper {

struct Sizes {  // of the problem, or of one of its sequences where lengths vary; in 32 bits
  int Tq, Tk, H, Hkv, group, D;
  int ahead;  // Tk - Tq
  bool causal;
  float scale, scale_log2;
  int first_query = 0, first_key = 0;                 // rows of the tensors
  int first_lot = 0, first_tile = 0, first_stat = 0;  // places of lots and tiles, and of the tiles' queries

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
  // From the problem's to those of its sequence b.
  KILN_HD void enter(const AttentionProblem& p, const Sequences& all, int keys, int queries, int b) {
    const SequenceRows its_queries = rows_of_sequence(all.cu_queries, b, p.all_queries, p.Tq),
                       its_keys = rows_of_sequence(all.cu_keys, b, p.all_keys, p.Tk);
    Tq = its_queries.count, Tk = its_keys.count, ahead = Tk - Tq;
    first_query = its_queries.first, first_key = its_keys.first;
    first_lot = first_place(first_key, b, keys);
    first_tile = first_place(first_query, b, queries);
    first_stat = first_tile * queries;
  }
  // To the sequence that has this place among the lots, or among the tiles.
  KILN_HD void enter_lot(const AttentionProblem& p, const Sequences& all, int keys, int queries, int lot) {
    enter(p, all, keys, queries, sequence_at(all.cu_keys, static_cast<int>(p.B), keys, lot));
  }
  KILN_HD void enter_tile(const AttentionProblem& p, const Sequences& all, int keys, int queries, int tile) {
    enter(p, all, keys, queries, sequence_at(all.cu_queries, static_cast<int>(p.B), queries, tile));
  }
  KILN_HD int visible(int i) const {  // keys, to a query that exists
    const int n = causal ? i + 1 + ahead : Tk;
    return n < 0 ? 0 : (n > Tk ? Tk : n);
  }
};

// A shape of block for sequences whose lengths vary: kernels of their own, since lengths that are not
// constants take registers, of which the products leave none.
template <class Shape>
struct Varied : Shape {
  static constexpr bool kVaried = true;
};

constexpr int kMostLots = 256;  // of a block

struct Lots {
  enum class Order { single, paired, cyclic };
  Order order = Order::single;
  int lots, tiles;    // of keys and of queries, of a head; places for them where lengths vary
  int heads;          // B * Hkv; Hkv where lengths vary
  int per_head;       // blocks
  int heads_at_once;  // with single all
  int early;          // lots that are a block's first; with paired

  Lots(const AttentionProblem& p, int keys, int queries, int at_once) {
    lots = static_cast<int>(p.varied ? tile_places(p.all_keys, p.B, keys) : (p.Tk + keys - 1) / keys);
    tiles = static_cast<int>(p.varied ? tile_places(p.all_queries, p.B, queries)
                                      : (p.Tq + queries - 1) / queries);
    heads = static_cast<int>(p.batches() * p.Hkv);
    early = (lots + 1) / 2;
    if (!p.varied && p.causal && p.Tq == p.Tk && lots > 1 && early <= at_once) order = Order::paired;
    if (!p.varied && !p.causal && lots <= at_once) order = Order::cyclic;
    per_head = order == Order::paired ? early : lots;
    const int fit = at_once / per_head;
    heads_at_once = order == Order::single || fit > heads ? heads : fit;
    if (order != Order::single && (heads / heads_at_once + 1) * 2 > kMostLots) {
      order = Order::single;
      per_head = lots;
      heads_at_once = heads;
    }
  }
  int64_t blocks() const { return int64_t{per_head} * heads_at_once; }
};

// A block's turn to add to a tile of dq.
struct Turn {
  bool late;  // which of the two sums
  int turn;   // shares that come before
};
// How many shares a tile has, early and late.
struct Shares {
  int early, late;
};

// The s-th lot of keys of a block. Queries are walked over head by head of the group, tile by tile.
template <int kKeys, int kQueries>
struct KeyLot {
  bool exists = true;
  int hkv, b, j;
  int start, step;  // the tile it begins with, and how it goes on
  int from, to;     // tiles that see it
  bool late = false;

  KILN_HD KeyLot(const Sizes& z, const Lots& l, int block, int s) {
    int head = block / l.per_head;
    j = block % l.per_head;
    if (l.order == Lots::Order::single) {
      j -= z.first_lot;
      exists = s == 0 && j >= 0 && j * kKeys < z.Tk;
    } else if (l.order == Lots::Order::cyclic) {
      head += s * l.heads_at_once;
    } else {
      late = s % 2 == 1;
      head += s / 2 * l.heads_at_once;
      if (late) j = l.lots - 1 - j;
    }
    exists = exists && head < l.heads;
    hkv = head % z.Hkv;
    b = head / z.Hkv;
    const int first_seen = z.causal && j * kKeys > z.ahead ? j * kKeys - z.ahead : 0;
    from = first_seen / kQueries;
    to = first_seen < z.Tq ? (z.Tq + kQueries - 1) / kQueries : from;
    const bool back = late || l.order == Lots::Order::single;
    start = back ? to - 1 : from;
    step = back ? -1 : 1;
    if (l.order == Lots::Order::cyclic) start = (l.tiles - j * l.tiles / l.lots) % l.tiles;
    if (late && j < l.early) to = from, late_twin = true;
  }
  bool late_twin = false;  // the middle one of an odd number, met again: nothing to do

  KILN_HD int steps(const Sizes& z) const { return (to - from) * z.group; }

  KILN_HD static int last_lot(const Sizes& z, int tile) {
    const int end = (tile + 1) * kQueries;
    return (z.visible((end < z.Tq ? end : z.Tq) - 1) + kKeys - 1) / kKeys - 1;
  }
  KILN_HD Turn turn(const Sizes& z, const Lots& l, int tile) const {
    if (l.order == Lots::Order::cyclic) {
      const int first = ((l.tiles - tile) * l.lots + l.tiles - 1) / l.tiles % l.lots;
      return {false, (j - first + l.lots) % l.lots};
    }
    if (l.order == Lots::Order::single) return {false, j};
    if (late) return {true, j - l.early};
    const int last = last_lot(z, tile);
    return {false, (last >= l.early ? l.early - 1 : last) - j};
  }
  KILN_HD static Shares shares(const Sizes& z, const Lots& l, int tile) {
    const int all = last_lot(z, tile) + 1;
    if (l.order != Lots::Order::paired || all <= l.early) return {all, 0};
    return {l.early, all - l.early};
  }

  // Whether the block is done with the head, and f(tile) of those it then writes out.
  KILN_HD bool finishes_head(const Lots& l, int s) const {
    return l.order == Lots::Order::cyclic || (l.order == Lots::Order::paired && s % 2 == 1);
  }
  template <class F>
  KILN_HD void for_finished_tiles(const Sizes& z, const Lots& l, F f) const {
    if (l.order == Lots::Order::cyclic) {  // those it met last
      int tile = start;
      for (int n = 0; n < l.tiles; ++n) {
        tile = (tile == 0 ? l.tiles : tile) - 1;
        if (turn(z, l, tile).turn != l.lots - 1) return;
        f(tile);
      }
      return;
    }
    for (int lot = l.lots - 1 - j; lot <= j; lot += j > l.lots - 1 - j ? 2 * j - l.lots + 1 : 1) {
      for (int tile = lot * kKeys / kQueries; tile < (lot + 1) * kKeys / kQueries && tile < l.tiles; ++tile)
        f(tile);
    }
  }
};

// A step: a tile of queries of one head.
template <class Lot>
struct QueryWalk {
  int h, tile;
  KILN_HD QueryWalk(const Sizes& z, const Lot& at) : h(at.hkv * z.group), tile(at.start) {}
  KILN_HD void next(const Lot& at) {
    tile += at.step;
    if (tile == at.to) tile = at.from;
    if (tile < at.from) tile = at.to - 1;
    if (tile == at.start) ++h;
  }
};

}  // namespace kiln::hopper
