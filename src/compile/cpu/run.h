// Runs a program on the CPU: tile by tile through the rank's threads, in an order that does not depend on
// them.
#pragma once

#include "autograd/rank_context.h"
#include "compile/cpu/tile.h"

namespace kiln::compile {

// `memory` of every value; `partials`: partial_bytes() of the kernel that needs most.
void run_on_cpu(RankContext& ctx, const Program& p, DType computes, std::span<const Memory> memory,
                const Tensor& partials, std::source_location where = std::source_location::current());

}  // namespace kiln::compile
