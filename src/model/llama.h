// Tokens to loss: embedding, blocks, final norm, head, cross-entropy. Knows nothing of devices or
// parallelism: it asks a Partition which shard of a layer is here. Positions enter in each block's attention,
// where q and k are turned (ops/rope).
#pragma once

#include <deque>

#include "model/block.h"
#include "model/model.h"

namespace kiln {

class Llama final : public Model {
 public:
  // `partition` must outlive the model.
  explicit Llama(const ModelConfig& config, const Partition& partition = whole_model());

  Tensor logits(RankContext& ctx, const Tensor& tokens) const override;
  Tensor loss(RankContext& ctx, const Tensor& tokens, const Tensor& targets) const override;
  Tensor decode(RankContext& ctx, const Tensor& tokens, KvCache& cache) const override;

 private:
  Tensor embed(RankContext& ctx, const Tensor& tokens) const;     // -> [B, T, C]
  Residual hidden(RankContext& ctx, const Tensor& tokens) const;  // -> [B, T, C], not normed yet
  Residual blocks(RankContext& ctx, const Residual& x, int64_t begin, int64_t end) const;
  Tensor final_norm(RankContext& ctx, const Residual& x) const;  // in the dtype of the head

  Param* embedding_;  // [V, C], the rows that are here
  std::deque<Block> blocks_;
  Param* norm_;  // [C]
  Param* head_;  // [V, C]; the embedding itself when tied
};

}  // namespace kiln
