// Tokens to loss: embedding, blocks, final norm, head, cross-entropy. Knows nothing of devices or
// parallelism. Positions enter in each block's attention, where q and k are turned (ops/rope).
#pragma once

#include <deque>

#include "autograd/param_store.h"
#include "model/block.h"
#include "model/config.h"

namespace kiln {

class Llama {
 public:
  explicit Llama(const ModelConfig& config);

  ParamStore& params() { return params_; }
  const ModelConfig& config() const { return config_; }

  Tensor logits(RankContext& ctx, const Tensor& tokens) const;  // int32 [B, T] -> [B, T, V]
  Tensor loss(RankContext& ctx, const Tensor& tokens, const Tensor& targets) const;  // -> [1]

 private:
  Tensor hidden(RankContext& ctx, const Tensor& tokens) const;  // -> [B, T, C], not normed yet
  Tensor blocks(RankContext& ctx, const Tensor& x, int64_t begin, int64_t end) const;

  ModelConfig config_;
  ParamStore params_;
  Param* embedding_;  // [V, C]
  std::deque<Block> blocks_;
  Param* norm_;  // [C]
  Param* head_;  // [V, C]; the embedding itself when tied
};

}  // namespace kiln
