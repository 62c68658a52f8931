// SGD over the spans of a model: one momentum buffer per flat buffer, none without momentum; one op call per
// parameter.
#pragma once

#include <vector>

#include "optim/optimizer.h"

namespace kiln {

struct SgdOptions {
  double momentum = 0, decay = 0;
};

class SgdOptimizer final : public Optimizer {
 public:
  SgdOptimizer(RankContext& ctx, std::vector<ParamSpan> spans, const SgdOptions& options);

  void step(RankContext& ctx, const Tensor& scalars) override;
  void add(RankContext& ctx, std::vector<ParamSpan> spans, const Tensor& scalars) override;

  const SgdOptions& options() const { return options_; }
  const Tensor& momentum() const { return b_; }  // undefined without

 private:
  SgdOptions options_;
  Tensor b_;  // flat, the spans one after another
};

}  // namespace kiln
