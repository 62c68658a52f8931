// One state tensor of an optimizer by the names of the weights, as exact fp32, in pieces: what
// model/param_values.h is for weights. The optimizer's spans may be all of the store's ranges or this rank's
// parts of them.
#pragma once

#include "model/named_values.h"
#include "optim/optimizer.h"

namespace kiln {

class OptimizerValues final : public NamedValues {
 public:
  // The store whose spans the optimizer has, or parts of them: matched by name and offset. Both must outlive
  // this.
  OptimizerValues(RankContext& ctx, ParamStore& store, const Optimizer& optimizer,
                  const OptimizerState& state);
  void download(int64_t at, std::span<float> out) override;

 private:
  void upload(int64_t at, std::span<const float> in) override;

  RankContext& ctx_;
  Tensor flat_;
};

}  // namespace kiln
