// Adding one gradient to another: the one kernel the tape itself needs. Implemented by ops/add.
#pragma once

#include "autograd/param.h"

namespace kiln {

// slot += src, or slot = src on first touch; row-strided on both sides.
void accumulate_grad(RankContext& ctx, const GradSlot& slot, const Tensor& src);

}  // namespace kiln
