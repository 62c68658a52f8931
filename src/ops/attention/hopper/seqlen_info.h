// The lengths a CTA of flash_hopper (or of flash's fused backward) works with: those of the problem, or,
// where lengths vary (varlen), those of the one sequence it looked up when it started.
#pragma once

#include "ops/attention/sequences.h"

namespace kiln::hopper {

// Of the problem, or of one of its sequences where lengths vary; in 32 bits.
struct SeqlenInfo {
  int Tq, Tk, H, Hkv, group, D;
  int ahead;  // Tk - Tq
  bool causal;
  float scale, scale_log2;
  int first_query = 0, first_key = 0;  // rows of the tensors
  // Places (sequences.h) of its key blocks, of its query tiles and of the tiles' queries.
  int first_block = 0, first_tile = 0, first_stat = 0;

  explicit SeqlenInfo(const AttentionProblem& p)
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
  KILN_HD void enter_sequence(const AttentionProblem& p, const Sequences& all, int keys, int queries, int b) {
    const SequenceRows its_queries = rows_of_sequence(all.cu_queries, b, p.all_queries, p.Tq),
                       its_keys = rows_of_sequence(all.cu_keys, b, p.all_keys, p.Tk);
    Tq = its_queries.count, Tk = its_keys.count, ahead = Tk - Tq;
    first_query = its_queries.first, first_key = its_keys.first;
    first_block = first_place(first_key, b, keys);
    first_tile = first_place(first_query, b, queries);
    first_stat = first_tile * queries;
  }
  // To the sequence that has this place among the key blocks, or among the query tiles.
  KILN_HD void enter_key_block(const AttentionProblem& p, const Sequences& all, int keys, int queries,
                               int block) {
    enter_sequence(p, all, keys, queries, sequence_at(all.cu_keys, static_cast<int>(p.B), keys, block));
  }
  KILN_HD void enter_query_tile(const AttentionProblem& p, const Sequences& all, int keys, int queries,
                                int tile) {
    enter_sequence(p, all, keys, queries, sequence_at(all.cu_queries, static_cast<int>(p.B), queries, tile));
  }
  KILN_HD int visible(int i) const {  // keys, to a query that exists
    const int n = causal ? i + 1 + ahead : Tk;
    return n < 0 ? 0 : (n > Tk ? Tk : n);
  }
};

// The varlen form of a block shape: kernels of their own, since lengths that are not constants take
// registers, of which the matmuls leave none.
template <class Shape>
struct Varlen : Shape {
  static_assert(!Shape::kVarlen, "this is already the varlen form of a block shape");
  static constexpr bool kVarlen = true;
};

}  // namespace kiln::hopper
