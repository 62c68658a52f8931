// Which part of each layer is here, and what its neighbours add to it. This one: all of it, and nothing.
// Tensor parallelism (dist/tensor_parallel.h) puts another in its place; the model asks, and knows no ranks.
//
//   column   [out, in] by rows: heads of q, k and v; units of gate and up    split_input() goes before
//   row      [out, in] by columns: what those give is a summand              sum_output() comes after
//   vocab    [vocab, C] by rows: embedding and head                          embed() and loss()
//   plain    whole everywhere: norms
#pragma once

#include "autograd/param_store.h"
#include "model/config.h"

namespace kiln {

struct PartRange {
  int64_t begin, count;
};

class Partition {
 public:
  virtual ~Partition() = default;

  virtual int parts() const { return 1; }
  virtual int part() const { return 0; }
  PartRange of(int64_t n) const { return {n / parts() * part(), n / parts()}; }  // where check_parts() agreed
  PartRange of_vocab(int64_t rows) const { return vocab_range(rows, part()); }

  // x of a column product: itself. Its gradient is the sum of what the parts contribute.
  virtual Tensor split_input(RankContext&, const Tensor& x) const { return x; }
  // Of a row product: the sum over the parts. y is overwritten; its gradient is each part's.
  virtual Tensor sum_output(RankContext&, const Tensor& y) const { return y; }
  // Tokens and targets are ids of a vocabulary of `vocab` rows, of which the weight has of_vocab(). x is the
  // same on all parts; so are the results.
  virtual Tensor embed(RankContext& ctx, const Tensor& tokens, Param& weight, int64_t vocab) const;
  virtual Tensor loss(RankContext& ctx, const Tensor& x, Param& head, int64_t vocab,
                      const Tensor& targets) const;
  virtual Tensor logits(RankContext& ctx, const Tensor& x, Param& head) const;

  // Rows of a vocabulary that part i has. Any size is cut: in pieces of 64 rows where there are enough of
  // them, so that products stay aligned, else row by row.
  PartRange vocab_range(int64_t rows, int i) const;
};

const Partition& whole_model();

// Throws Error(usage), naming both numbers, where heads, key/value heads or d_ff do not divide, or the
// vocabulary has fewer rows than there are parts.
void check_parts(const ModelConfig& config, int parts);

}  // namespace kiln
