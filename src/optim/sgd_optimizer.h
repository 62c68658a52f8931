// SGD over the spans of a model: one momentum buffer per flat buffer, none without momentum; one op call per
// parameter.
#pragma once

#include <vector>

#include "autograd/param_store.h"

namespace kiln {

struct SgdOptions {
  double momentum = 0, decay = 0;
};

class SgdOptimizer {
 public:
  SgdOptimizer(RankContext& ctx, std::vector<ParamSpan> spans, const SgdOptions& options);

  // Reads learning rate, clip factor and verdict from the device record.
  void step(RankContext& ctx, const Tensor& scalars);

  const SgdOptions& options() const { return options_; }
  const Tensor& momentum() const { return b_; }  // undefined without

 private:
  std::vector<ParamSpan> spans_;
  SgdOptions options_;
  Tensor b_;  // flat, the spans one after another
};

}  // namespace kiln
