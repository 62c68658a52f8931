// Finds the first op whose output is not finite. Attached only while a bad step is run again: it reads every
// output back to the host.
#pragma once

#include "autograd/op_observer.h"
#include "base/error.h"

namespace kiln {

// The flat index of the first element that is NaN or infinite, and its value; or -1. Reads all of it back.
int64_t first_non_finite(RankContext& ctx, const Tensor& t, double& value);

class NonFiniteFinder final : public OpObserver {
 public:
  // Throws Error naming op, variant, pass, scope, output and element.
  void on_op_end(RankContext& ctx, const OpEvent& event) override;
};

}  // namespace kiln
