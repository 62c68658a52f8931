// The interface of a model to training, sampling and checkpoints: tokens to loss or logits, and its
// parameters by name. Only make_model() knows the kinds of models.
#pragma once

#include <memory>

#include "autograd/param_store.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/partition.h"

namespace kiln {

class Model {
 public:
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  ParamStore& params() { return params_; }
  const ModelConfig& config() const { return config_; }  // of the whole model, whatever part is here
  const Partition& partition() const { return partition_; }
  DType dtype() const { return params_.policy().compute; }  // of matmuls, and of keys and values

  virtual Tensor logits(RankContext& ctx, const Tensor& tokens) const = 0;  // int32 [B, T] -> [B, T, V]
  virtual Tensor loss(RankContext& ctx, const Tensor& tokens, const Tensor& targets) const = 0;  // -> [1]
  // Generation: the logits of what follows. The tokens, int32 [B, T], come after those the cache holds and
  // are in it afterwards; T > 1 for a prompt, then 1 at a time. Records no gradient. -> [B, V]
  virtual Tensor decode(RankContext& ctx, const Tensor& tokens, KvCache& cache) const = 0;

 protected:
  Model(const ModelConfig& config, const Partition& partition) : config_(config), partition_(partition) {}

  ModelConfig config_;
  const Partition& partition_;
  ParamStore params_;
};

// Without storage: a list of its weights until its parameters are materialized. `partition` must outlive it.
std::unique_ptr<Model> make_model(const ModelConfig& config, const Partition& partition = whole_model());

}  // namespace kiln
