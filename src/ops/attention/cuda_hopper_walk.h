// Which keys a block of flash_hopper's (or flash's) backward has, which queries it meets and in what order;
// and with it the order in which shares of dq are added up. The order is fixed, so dq always has the same
// bits; and it is the order in which the blocks come by, one step apart, so nobody waits long.
//
//   to_and_fro  a causal mask: the first keys are seen by all queries, the last by few. A head's lots are
//            dealt out to its blocks to and fro: block a of four has lots a, 7 - a, 8 + a, ..., so all make
//            about as many steps. Lots dealt forth are walked from the diagonal on: lot j meets a tile a step
//            after lot j + 1. Those dealt back are walked from the end back: lot j + 1 meets a tile a step
//            after lot j. The two directions run at the same time, so each has its own sums. (A lot to a
//            block, however ordered, left a quarter of the GPU idle at the end of a head of 65,536.)
//   cyclic   no mask: lot j begins so many tiles before the end that each meets a tile after its neighbour.
//   single   everything else: one lot a block, numbered as blocks start; nobody waits for a block that has
//            not begun. The first keys come first, since under a mask they have the most queries, and all
//            walk from the last query back, so that lot j + 1 meets a tile a step after lot j. Also for
//            sequences whose lengths vary: their lots have the places of sequences.h, and a block whose
//            place is nobody's has no lot.
//
// In the first two, blocks of a head wait for each other, so they must all be in the GPU at once: as many
// heads as fit are worked on together, then the next. When a block is done with a head it writes out some
// tiles of dq, those that the others were done with long ago. With single another kernel does that, and where
// a head's lots are dealt more than forth and back once.
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
  enum class Order { single, to_and_fro, cyclic };
  Order order = Order::single;
  int lots, tiles;    // of keys and of queries, of a head; places for them where lengths vary
  int heads;          // B * Hkv; Hkv where lengths vary
  int per_head;       // blocks
  int heads_at_once;  // with single all
  int deals;          // lots that a block gets of a head
  float one_deal;     // 1 / deals: a division of integers costs a short kernel 2 %

  Lots(const AttentionProblem& p, int keys, int queries, int at_once) {
    lots = static_cast<int>(p.varied ? tile_places(p.all_keys, p.B, keys) : (p.Tk + keys - 1) / keys);
    tiles = static_cast<int>(p.varied ? tile_places(p.all_queries, p.B, queries)
                                      : (p.Tq + queries - 1) / queries);
    heads = static_cast<int>(p.batches() * p.Hkv);
    deal_out(lots, heads, Order::single);
    if (p.varied || at_once == 0) return;
    if (p.causal && p.Tq == p.Tk && lots > 1) {
      const int most = (lots + 1) / 2 < at_once ? (lots + 1) / 2 : at_once;
      deal_out(most, at_once / most, Order::to_and_fro);
    }
    if (!p.causal && lots <= at_once) deal_out(lots, at_once / lots, Order::cyclic);
    if (order != Order::single && (heads / heads_at_once + 1) * deals > kMostLots)
      deal_out(lots, heads, Order::single);
  }
  int64_t blocks() const { return int64_t{per_head} * heads_at_once; }
  // Whether blocks write dq out.
  KILN_HD bool finish() const { return order == Order::cyclic || (order == Order::to_and_fro && deals == 2); }

 private:
  void deal_out(int blocks, int heads_that_fit, Order how) {
    order = how;
    per_head = blocks;
    heads_at_once = heads_that_fit > heads ? heads : heads_that_fit;
    deals = blocks == 0 ? 1 : (lots + blocks - 1) / blocks;
    one_deal = 1.0f / static_cast<float>(deals);
  }
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
  bool none = false;  // the head has no lot left in this deal: nothing to do
  int hkv, b, j;
  int deal = 0;
  int start, step;  // the tile it begins with, and how it goes on
  int from, to;     // tiles that see it
  bool late = false;

  KILN_HD KeyLot(const Sizes& z, const Lots& l, int block, int s) {
    int head = block / l.per_head;
    j = block % l.per_head;
    if (l.order == Lots::Order::single) {
      j -= z.first_lot;
      exists = s == 0 && j >= 0 && j * kKeys < z.Tk;
    } else {
      const int round = static_cast<int>((static_cast<float>(s) + 0.5f) * l.one_deal);  // s / deals
      head += round * l.heads_at_once;
      deal = s - round * l.deals;
      late = deal % 2 == 1;
      j = deal * l.per_head + (late ? l.per_head - 1 - j : j);
      none = j >= l.lots;
    }
    exists = exists && head < l.heads;
    hkv = head % z.Hkv;
    b = head / z.Hkv;
    const int first_seen = z.causal && j * kKeys > z.ahead ? j * kKeys - z.ahead : 0;
    from = first_seen / kQueries;
    to = first_seen < z.Tq && !none ? (z.Tq + kQueries - 1) / kQueries : from;
    const bool back = late || l.order == Lots::Order::single;
    start = back ? to - 1 : from;
    step = back ? -1 : 1;
    if (l.order == Lots::Order::cyclic) start = (l.tiles - j * l.tiles / l.lots) % l.tiles;
  }

  KILN_HD int steps(const Sizes& z) const { return (to - from) * z.group; }

  KILN_HD static int last_lot(const Sizes& z, int tile) {
    const int end = (tile + 1) * kQueries;
    return (z.visible((end < z.Tq ? end : z.Tq) - 1) + kKeys - 1) / kKeys - 1;
  }
  KILN_HD Turn turn(const Sizes& z, const Lots& l, int tile) const {
    if (l.order == Lots::Order::single) return {false, j};
    if (l.order == Lots::Order::cyclic) {
      const int first = ((l.tiles - tile) * l.lots + l.tiles - 1) / l.tiles % l.lots;
      return {false, (j - first + l.lots) % l.lots};
    }
    const int before = deal / 2 * l.per_head;  // those of earlier deals
    if (late) return {true, before + j - deal * l.per_head};
    const int last = last_lot(z, tile), end = (deal + 1) * l.per_head - 1;
    return {false, before + (last < end ? last : end) - j};
  }
  KILN_HD static Shares shares(const Sizes& z, const Lots& l, int tile) {
    const int all = last_lot(z, tile) + 1;
    if (l.order != Lots::Order::to_and_fro) return {all, 0};
    const int deals = all / l.per_head, rest = all % l.per_head;  // whole ones, and lots of the last
    const int late = deals / 2 * l.per_head + (deals % 2 == 1 ? rest : 0);
    return {all - late, late};
  }

  // The same where blocks write dq out.
  KILN_HD static Shares finished_shares(const Sizes& z, const Lots& l, int tile) {
    const int all = last_lot(z, tile) + 1;
    if (l.order == Lots::Order::cyclic || all <= l.per_head) return {all, 0};
    return {l.per_head, all - l.per_head};
  }

  // Whether the block is done with the head and writes out some of its tiles, and f(tile) of those.
  KILN_HD bool finishes_head(const Lots& l) const { return l.finish() && deal == l.deals - 1; }
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
    const int other = 2 * l.per_head - 1 - j;  // its lot of the first deal
    for (int lot = other; lot <= j; lot += j - other) {
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
