// The sequence a block works on: a batch's own rows, or, where lengths vary, some of the rows that all
// sequences share. Looked up once, when a block begins; a block that has no rows of its sequence ends there.
#pragma once

#include "ops/attention/sequences.h"

namespace kiln::flash {

// In 32 bits: a block has all of it at hand, all the time.
struct Sequence {
  int Tq, Tk;
  int first_query = 0, first_key = 0;  // rows of the tensors
  int batch;  // of the batch, and of tensors; where lengths vary these have a stride of 0
  bool causal;

  __device__ Sequence(const AttentionProblem& p, const Sequences& all, int b)
      : Tq(static_cast<int>(p.Tq)), Tk(static_cast<int>(p.Tk)), batch(b), causal(p.causal) {
    if (all.cu_queries == nullptr) return;
    const SequenceRows queries = rows_of_sequence(all.cu_queries, b, p.all_queries, p.Tq),
                       keys = rows_of_sequence(all.cu_keys, b, p.all_keys, p.Tk);
    first_query = queries.first, Tq = queries.count;
    first_key = keys.first, Tk = keys.count;
  }
  __device__ int end_query() const { return first_query + Tq; }
  __device__ int end_key() const { return first_key + Tk; }
  // One past the last key that query i sees.
  __device__ int visible(int i) const {
    const int n = causal ? i + 1 + Tk - Tq : Tk;
    return n < 0 ? 0 : (n > Tk ? Tk : n);
  }
  // Of lse, and what is laid out like it: the place of head h's query i.
  __device__ int64_t stat(const AttentionProblem& p, int h, int i) const {
    return ((p.varlen ? 0 : batch * p.H) + h) * p.query_rows() + first_query + i;
  }
};

}  // namespace kiln::flash
