// A tensor's values in another dtype, outside of the tape: what a weight that is cast at use is cast with.
// Implemented by ops/cast.
#pragma once

#include "autograd/rank_context.h"

namespace kiln {

Tensor cast_values(RankContext& ctx, const Tensor& x, DType to, Tag tag);

}  // namespace kiln
