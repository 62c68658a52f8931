// The workspace of a fused backward, flash_hopper's or flash's: known on any machine, since the meta device
// counts it too.
#pragma once

#include <cstddef>

#include "ops/attention/hopper/hopper_table.h"
#include "ops/attention/sequences.h"

namespace kiln {

struct BackwardWorkspace {
  int64_t width, queries;  // channels and queries of a tile
  int64_t tiles, padded;   // of a head, or places for them (sequences.h); and their queries
  int64_t counter_count;
  int64_t late_offset;  // of dq's late sums, behind the early ones: in units of 16 bytes
  std::size_t lse2, delta, counters, dq_accum, total;  // bytes from the beginning on

  explicit BackwardWorkspace(const AttentionProblem& p)
      : BackwardWorkspace(p, hopper_width(p.D), hopper_queries(hopper_width(p.D))) {}
  BackwardWorkspace(const AttentionProblem& p, int64_t width, int64_t queries)
      : width(width), queries(queries) {
    tiles = p.varlen ? tile_places(p.all_queries, p.B, queries) : (p.Tq + queries - 1) / queries;
    padded = tiles * queries;
    const int64_t heads = p.batches() * p.H;
    counter_count = 1 + 2 * heads * tiles;  // a ticket; the semaphores of each tile's early and late sum
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
    late_offset = sums / 16;
    dq_accum = take(p.causal && !p.varlen && p.Tq == p.Tk ? 2 * sums : sums);  // two in serpentine order
    total = end;
  }
};

}  // namespace kiln
