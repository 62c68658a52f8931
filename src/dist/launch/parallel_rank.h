// A rank's place in a run whose ranks split the batch, the model, or both, and what it is given there:
// ranks are a grid of data x tensor (ParamLayout::tensor_ranks), those of a row hold the shards of one model,
// those of a column the same part of it.
#pragma once

#include "dist/comm/mesh.h"
#include "dist/strategy/strategies.h"
#include "dist/tensor/tensor_parallel.h"

namespace kiln {

class ParallelRank {
 public:
  // Every rank of `all` makes one. Both must outlive it; so must it the model, and what the tape holds of it.
  // Throws Error(usage) where `tensor_ranks` does not divide them.
  ParallelRank(RankContext& ctx, Communicator& all, int tensor_ranks, std::string_view strategy,
               const StrategyOptions& options = {});

  const Partition& partition() const { return tensor_ ? *tensor_ : whole_model(); }
  Strategy& strategy() { return *strategy_; }
  Communicator& data() { return mesh_.dp_group ? *mesh_.dp_group : all_; }
  Communicator* tensor() { return mesh_.tp_group.get(); }  // null where the model is whole

 private:
  Communicator& all_;
  Mesh mesh_;
  std::unique_ptr<TensorParallel> tensor_;
  std::unique_ptr<Strategy> strategy_;
};

}  // namespace kiln
