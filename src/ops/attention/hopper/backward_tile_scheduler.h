// The backward tile scheduler of flash_hopper and of flash's fused kernel: which key blocks a CTA has, which
// query tiles it visits and in what order; and with that the order in which CTAs add to dq. That order is
// fixed, so dq always has the same bits (the dQ semaphore: dq_semaphore.cuh); and it is the order in which
// CTAs come by, one step apart, so nobody waits long.
//
//   serpentine  a causal mask: the first keys are seen by all queries, the last by few. A head's key blocks
//            are assigned to its CTAs in serpentine rows: CTA a of four has key blocks a, 7 - a, 8 + a, ...,
//            so all make about as many steps. Even rows are walked from the diagonal on: key block j visits a
//            query tile a step after key block j + 1. Odd rows are walked from the end back: key block j + 1
//            visits a tile a step after key block j. The two directions run at the same time, so each has its
//            own fp32 sums, early and late. (With one key block to a CTA, however ordered, CTAs of one head
//            of 65,536 would wait a fifth of the time: played on the host, 1260 rounds for 1000.)
//   cyclic   no mask: key block j begins so many tiles before the end that each visits a tile after its
//            neighbour.
//   single   everything else: one key block to a CTA, numbered as CTAs start; nobody waits for a CTA that has
//            not begun. The first keys come first, since under a mask they have the most queries, and all
//            walk from the last query back, so that key block j + 1 visits a tile a step after key block j.
//            Also for varlen: key blocks have the places of sequences.h, and a CTA whose place is nobody's
//            has none.
//
// In the first two, CTAs of a head wait for each other, so they must all be resident at once: as many heads
// as fit are worked on together, then the next. When a CTA of flash_hopper is done with a head it writes out
// some tiles of dq, those that the others were done with long ago. With single another kernel does that, and
// where a head has more than two serpentine rows.
#pragma once

#include <concepts>

#include "ops/attention/hopper/seqlen_info.h"

namespace kiln::hopper {

constexpr int kMaxKeyBlocks = 256;  // of a CTA

struct BackwardTileScheduler {
  enum class Order { single, serpentine, cyclic };
  Order order = Order::single;
  int key_blocks, query_tiles;  // of a head; places for them where lengths vary
  int heads;                    // B * Hkv; Hkv where lengths vary
  int ctas_per_head;
  int heads_at_once;    // with single all
  int serpentine_rows;  // key blocks that a CTA gets of a head
  float one_over_rows;  // 1 / serpentine_rows: a division of integers costs a short kernel 2 %

  BackwardTileScheduler(const AttentionProblem& p, int keys, int queries, int at_once) {
    key_blocks = static_cast<int>(p.varlen ? tile_places(p.all_keys, p.B, keys) : (p.Tk + keys - 1) / keys);
    query_tiles = static_cast<int>(p.varlen ? tile_places(p.all_queries, p.B, queries)
                                            : (p.Tq + queries - 1) / queries);
    heads = static_cast<int>(p.batches() * p.Hkv);
    assign(key_blocks, heads, Order::single);
    if (p.varlen || at_once == 0) return;
    if (p.causal && p.Tq == p.Tk && key_blocks > 1) {
      const int most = (key_blocks + 1) / 2 < at_once ? (key_blocks + 1) / 2 : at_once;
      assign(most, at_once / most, Order::serpentine);
    }
    if (!p.causal && key_blocks <= at_once) assign(key_blocks, at_once / key_blocks, Order::cyclic);
    if (order != Order::single && (heads / heads_at_once + 1) * serpentine_rows > kMaxKeyBlocks)
      assign(key_blocks, heads, Order::single);
  }
  int64_t ctas() const { return int64_t{ctas_per_head} * heads_at_once; }
  // Whether CTAs write dq out; else another kernel does.
  KILN_HD bool ctas_write_dq() const {
    return order == Order::cyclic || (order == Order::serpentine && serpentine_rows == 2);
  }

 private:
  void assign(int ctas, int heads_that_fit, Order how) {
    order = how;
    ctas_per_head = ctas;
    heads_at_once = heads_that_fit > heads ? heads : heads_that_fit;
    serpentine_rows = ctas == 0 ? 1 : (key_blocks + ctas - 1) / ctas;
    one_over_rows = 1.0f / static_cast<float>(serpentine_rows);
  }
};

// A key block's turn to add to a tile of dq: the value of the semaphore that it waits for.
struct DqTurn {
  bool late;  // which of the two sums
  int turn;   // contributions that come before
};
// How many contributions a tile of dq gets, early and late: what its semaphores count to.
struct DqCounts {
  int early, late;
};

// A CTA's s-th key block. Queries are walked over head by head of the group, tile by tile.
template <int kKeys, int kQueries>
struct KeyBlock {
  bool exists = true;
  bool none = false;  // the head has no key block left in this row: nothing to do
  int hkv, b, j;
  int row = 0;
  int start, step;  // the first tile, and the way to the next
  int from, to;     // tiles that see it
  bool late = false;

  KILN_HD KeyBlock(const SeqlenInfo& z, const BackwardTileScheduler& l, int cta, int s) {
    int head = cta / l.ctas_per_head;
    j = cta % l.ctas_per_head;
    if (l.order == BackwardTileScheduler::Order::single) {
      j -= z.first_block;
      exists = s == 0 && j >= 0 && j * kKeys < z.Tk;
    } else {
      const int round = static_cast<int>((static_cast<float>(s) + 0.5f) * l.one_over_rows);  // s / rows
      head += round * l.heads_at_once;
      row = s - round * l.serpentine_rows;
      late = row % 2 == 1;
      j = row * l.ctas_per_head + (late ? l.ctas_per_head - 1 - j : j);
      none = j >= l.key_blocks;
    }
    exists = exists && head < l.heads;
    hkv = head % z.Hkv;
    b = head / z.Hkv;
    const int first_seen = z.causal && j * kKeys > z.ahead ? j * kKeys - z.ahead : 0;
    from = first_seen / kQueries;
    to = first_seen < z.Tq && !none ? (z.Tq + kQueries - 1) / kQueries : from;
    const bool back = late || l.order == BackwardTileScheduler::Order::single;
    start = back ? to - 1 : from;
    step = back ? -1 : 1;
    if (l.order == BackwardTileScheduler::Order::cyclic)
      start = (l.query_tiles - j * l.query_tiles / l.key_blocks) % l.query_tiles;
  }

  KILN_HD int steps(const SeqlenInfo& z) const { return (to - from) * z.group; }

  KILN_HD static int last_key_block(const SeqlenInfo& z, int tile) {
    const int end = (tile + 1) * kQueries;
    return (z.visible((end < z.Tq ? end : z.Tq) - 1) + kKeys - 1) / kKeys - 1;
  }
  KILN_HD DqTurn dq_turn(const SeqlenInfo& z, const BackwardTileScheduler& l, int tile) const {
    if (l.order == BackwardTileScheduler::Order::single) return {false, j};
    if (l.order == BackwardTileScheduler::Order::cyclic) {
      const int first =
          ((l.query_tiles - tile) * l.key_blocks + l.query_tiles - 1) / l.query_tiles % l.key_blocks;
      return {false, (j - first + l.key_blocks) % l.key_blocks};
    }
    const int before = row / 2 * l.ctas_per_head;  // those of earlier rows
    if (late) return {true, before + j - row * l.ctas_per_head};
    const int last = last_key_block(z, tile), end = (row + 1) * l.ctas_per_head - 1;
    return {false, before + (last < end ? last : end) - j};
  }
  KILN_HD static DqCounts dq_counts(const SeqlenInfo& z, const BackwardTileScheduler& l, int tile) {
    const int all = last_key_block(z, tile) + 1;
    if (l.order != BackwardTileScheduler::Order::serpentine) return {all, 0};
    const int rows = all / l.ctas_per_head,
              rest = all % l.ctas_per_head;  // whole ones, and key blocks of the last
    const int late = rows / 2 * l.ctas_per_head + (rows % 2 == 1 ? rest : 0);
    return {all - late, late};
  }

  // The same where CTAs write dq out.
  KILN_HD static DqCounts written_counts(const SeqlenInfo& z, const BackwardTileScheduler& l, int tile) {
    const int all = last_key_block(z, tile) + 1;
    if (l.order == BackwardTileScheduler::Order::cyclic || all <= l.ctas_per_head) return {all, 0};
    return {l.ctas_per_head, all - l.ctas_per_head};
  }

  // Whether the CTA is done with the head and writes out some of its dq tiles, and f(tile) of those.
  KILN_HD bool writes_dq_of_head(const BackwardTileScheduler& l) const {
    return l.ctas_write_dq() && row == l.serpentine_rows - 1;
  }
  template <class F>
  KILN_HD void for_written_tiles(const SeqlenInfo& z, const BackwardTileScheduler& l, F f) const {
    if (l.order == BackwardTileScheduler::Order::cyclic) {  // those it visited last
      int tile = start;
      for (int n = 0; n < l.query_tiles; ++n) {
        tile = (tile == 0 ? l.query_tiles : tile) - 1;
        if (dq_turn(z, l, tile).turn != l.key_blocks - 1) return;
        f(tile);
      }
      return;
    }
    const int other = 2 * l.ctas_per_head - 1 - j;  // its key block of the first row
    for (int block = other; block <= j; block += j - other) {
      for (int tile = block * kKeys / kQueries; tile < (block + 1) * kKeys / kQueries && tile < l.query_tiles;
           ++tile)
        f(tile);
    }
  }
};

// A key block's walk over query tiles.
template <class Block>
concept TileWalk = requires(const Block& at) {
  { at.start + at.step + at.from + at.to + at.hkv } -> std::convertible_to<int>;
};

// The steps of a key block, each a query tile of one head.
template <TileWalk KeyBlockT>
struct QueryTileIterator {
  int h, tile;
  KILN_HD QueryTileIterator(const SeqlenInfo& z, const KeyBlockT& at) : h(at.hkv * z.group), tile(at.start) {}
  KILN_HD void next(const KeyBlockT& at) {
    tile += at.step;
    if (tile == at.to) tile = at.from;
    if (tile < at.from) tile = at.to - 1;
    if (tile == at.start) ++h;
  }
};

}  // namespace kiln::hopper
