// Tokens to loss: embedding, blocks, final norm, head, cross-entropy. Knows nothing of devices or
// parallelism: it asks a Partition which part of a layer is here. Positions enter in each block's attention,
// where q and k are turned (ops/rope).
#pragma once

#include <deque>

#include "autograd/param_store.h"
#include "model/block.h"
#include "model/config.h"

namespace kiln {

class Llama {
 public:
  // `partition` must outlive the model.
  explicit Llama(const ModelConfig& config, const Partition& partition = whole_model());

  ParamStore& params() { return params_; }
  const ModelConfig& config() const { return config_; }  // of the whole model, whatever part is here
  const Partition& partition() const { return partition_; }
  DType dtype() const { return params_.policy().compute; }  // of products, and of keys and values

  Tensor logits(RankContext& ctx, const Tensor& tokens) const;  // int32 [B, T] -> [B, T, V]
  Tensor loss(RankContext& ctx, const Tensor& tokens, const Tensor& targets) const;  // -> [1]
  // Generation: the logits of what follows. The tokens, int32 [B, T], come after those the cache holds and
  // are in it afterwards; T > 1 for a prompt, then 1 at a time. Records no gradient. -> [B, V]
  Tensor decode(RankContext& ctx, const Tensor& tokens, KvCache& cache) const;

 private:
  Tensor embed(RankContext& ctx, const Tensor& tokens) const;     // -> [B, T, C]
  Residual hidden(RankContext& ctx, const Tensor& tokens) const;  // -> [B, T, C], not normed yet
  Residual blocks(RankContext& ctx, const Residual& x, int64_t begin, int64_t end) const;
  Tensor final_norm(RankContext& ctx, const Residual& x) const;  // in the dtype of the head

  ModelConfig config_;
  const Partition& partition_;
  ParamStore params_;
  Param* embedding_;  // [V, C], the rows that are here
  std::deque<Block> blocks_;
  Param* norm_;  // [C]
  Param* head_;  // [V, C]; the embedding itself when tied
};

}  // namespace kiln
