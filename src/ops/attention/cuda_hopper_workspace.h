// What a backward in one kernel, flash_hopper's or flash's, keeps beside its tensors: known on any machine,
// since the meta device counts it too.
#pragma once

#include <cstddef>

#include "ops/attention/hopper/hopper_table.h"
#include "ops/attention/sequences.h"

namespace kiln {

struct HopperWorkspace {
  int64_t width, queries, tiles,
      padded;  // channels and queries of a tile; tiles of a head (or places for them), and their queries
  int64_t counter_count;
  int64_t late_sums;                                  // of dq, behind the early ones: in units of 16 bytes
  std::size_t lse2, delta, counters, dq_sums, total;  // bytes from the beginning on

  explicit HopperWorkspace(const AttentionProblem& p)
      : HopperWorkspace(p, hopper_width(p.D), hopper_queries(hopper_width(p.D))) {}
  HopperWorkspace(const AttentionProblem& p, int64_t width, int64_t queries)
      : width(width), queries(queries) {
    tiles = p.varied ? tile_places(p.all_queries, p.B, queries) : (p.Tq + queries - 1) / queries;
    padded = tiles * queries;
    const int64_t heads = p.batches() * p.H;
    counter_count = 1 + 2 * heads * tiles;  // a ticket; turns at each tile's early and late sum
    std::size_t end = 0;
    const auto take = [&](int64_t bytes) {
      const std::size_t begin = end;
      end += (static_cast<std::size_t>(bytes) + 255) / 256 * 256;
      return begin;
    };
    lse2 = take(heads * padded * 4);
    delta = take(heads * padded * 4);
    counters = take(counter_count * 4);
    const int64_t sums = heads * padded * width * 4;
    late_sums = sums / 16;
    dq_sums = take(p.causal && !p.varied && p.Tq == p.Tk ? 2 * sums : sums);  // two, where lots go to and fro
    total = end;
  }
};

}  // namespace kiln
