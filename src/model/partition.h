// Which shard of each layer is here, and what its neighbours add to it. This one: all of it, and nothing.
// Tensor parallelism (dist/tensor/tensor_parallel.h) puts another in its place; the model asks, and knows no
// ranks.
//
//   column   [out, in] by rows: heads of q, k and v; units of gate and up    enter_shards() goes before
//   row      [out, in] by columns: what those give is a summand              leave_shards() comes after
//   vocab    [vocab, C] by rows: embedding and head                          embed() and loss()
//   plain    whole everywhere: norms
#pragma once

#include "autograd/param_store.h"
#include "model/config.h"

namespace kiln {

struct ShardRange {
  int64_t begin, count;
};

class Partition {
 public:
  virtual ~Partition() = default;

  virtual int shard_count() const { return 1; }
  virtual int shard_index() const { return 0; }
  ShardRange of(int64_t n) const {
    return {n / shard_count() * shard_index(), n / shard_count()};
  }  // where check_shards() agreed
  ShardRange of_vocab(int64_t rows) const { return vocab_range(rows, shard_index()); }

  // x of a column-parallel matmul: itself. Its gradient is the sum of what the shards contribute.
  virtual Tensor enter_shards(RankContext&, const Tensor& x) const { return x; }
  // Of a row-parallel matmul: the sum over the shards. y is overwritten; its gradient is each shard's.
  virtual Tensor leave_shards(RankContext&, const Tensor& y) const { return y; }
  // Tokens and targets are ids of a vocabulary of `vocab` rows, of which the weight has of_vocab(). x is the
  // same on all shards; so are the results.
  virtual Tensor embed(RankContext& ctx, const Tensor& tokens, Param& weight, int64_t vocab) const;
  virtual Tensor loss(RankContext& ctx, const Tensor& x, Param& head, int64_t vocab,
                      const Tensor& targets) const;
  virtual Tensor logits(RankContext& ctx, const Tensor& x, Param& head) const;

  // Rows of a vocabulary that shard i has. Any size is cut: in pieces of 64 rows where there are enough of
  // them, so that matmuls stay aligned, else row by row.
  ShardRange vocab_range(int64_t rows, int i) const;
};

const Partition& whole_model();

// Throws Error(usage), naming both numbers, where heads, key/value heads or d_ff do not divide, or the
// vocabulary has fewer rows than there are shards.
void check_shards(const ModelConfig& config, int shards);

}  // namespace kiln
