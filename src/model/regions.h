// The regions of a model: its functions of tensors between matmuls, each said once for the model that runs
// them and for the gate that checks them.
#pragma once

#include "autograd/region.h"
#include "ops/rope/rope.h"

namespace kiln {

// (x; weight) -> norm(x)
Region norm_region(float eps);
// (sum, last; weight) -> sum + last, and the norm of it
Region sum_norm_region(float eps);
// (q, k) -> both turned, in their place.
Region rope_region(const RopeOptions& options);
// (gate, up) -> silu(gate) * up
Region swiglu_region();
// (logits, targets) -> their mean cross-entropy
Region loss_region();

}  // namespace kiln
