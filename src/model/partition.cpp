#include "model/partition.h"

#include <algorithm>

#include "base/error.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"

namespace kiln {

Tensor Partition::embed(RankContext& ctx, const Tensor& tokens, Param& weight, int64_t) const {
  return embedding(ctx, tokens, weight);
}

Tensor Partition::loss(RankContext& ctx, const Tensor& x, Param& head, int64_t, const Tensor& targets) const {
  return linear_cross_entropy(ctx, x, head, targets);
}

Tensor Partition::logits(RankContext& ctx, const Tensor& x, Param& head) const {
  return linear(ctx, x, head);
}

ShardRange Partition::vocab_range(int64_t rows, int i) const {
  constexpr int64_t kAligned = 64;
  const int64_t n = shard_count(), unit = rows >= kAligned * n ? kAligned : 1;
  const int64_t units = rows / unit;  // the last shard takes what is left over
  const auto begin = [&](int64_t p) { return p == n ? rows : units * p / n * unit; };
  return {begin(i), begin(i + 1) - begin(i)};
}

const Partition& whole_model() {
  static const Partition kWhole;
  return kWhole;
}

void check_shards(const ModelConfig& c, int shards) {
  const auto divides = [shards](const char* what, int64_t n) {
    if (n % shards != 0)
      throw Error(cat(n, " ", what, " do not divide among ", shards, " tensor-parallel ranks"),
                  "choose a number of ranks that divides heads, key/value heads and d_ff", ErrorKind::usage);
  };
  if (shards < 1)
    throw Error(cat("a model was to be cut into ", shards, " shards; 1 or more are expected"), {},
                ErrorKind::usage);
  divides("heads", c.heads);
  divides("key/value heads", c.kv_heads);
  divides("hidden units (d_ff)", c.d_ff);
  if (c.vocab < shards)
    throw Error(
        cat("a vocabulary of ", c.vocab, " has no row for each of ", shards, " tensor-parallel ranks"), {},
        ErrorKind::usage);
}

}  // namespace kiln
