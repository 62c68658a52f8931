// A tensor's values in another dtype, outside of the tape: for weights cast at use and gradients
// cast for communication. Implemented by ops/cast.
#pragma once

#include "autograd/param.h"
#include "autograd/rank_context.h"

namespace kiln {

Tensor cast_values(RankContext& ctx, const Tensor& x, DType to, Tag tag);
// slot = x, or slot += x, row by row, in the slot's dtype, which is another than x's.
void cast_into(RankContext& ctx, const GradSlot& slot, const Tensor& x);

}  // namespace kiln
