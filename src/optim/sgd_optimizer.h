// SGD over the spans of a model: state "momentum", one buffer per flat buffer, none without momentum; one op
// call per parameter.
#pragma once

#include <vector>

#include "optim/optimizer.h"

namespace kiln {

struct SgdOptions {
  double momentum = 0.9, decay = kWeightDecay;
};

class SgdOptimizer final : public Optimizer {
 public:
  SgdOptimizer(RankContext& ctx, std::vector<ParamSpan> spans, const SgdOptions& options);

  void step(RankContext& ctx, const Tensor& scalars) override;

 private:
  SgdOptions options_;
};

}  // namespace kiln
