// What a pass of a region takes on this CPU, by itself: on tensors of small numbers, without a tape.
#pragma once

#include "autograd/rank_context.h"
#include "compile/fuse.h"

namespace kiln {

// Milliseconds of a call, the least of several.
double measured_pass_ms(RankContext& ctx, const compile::Program& p, DType computes);

}  // namespace kiln
