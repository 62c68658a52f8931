// Runs a compiled region: memory, kernels, watchers, and its node of the tape.
#pragma once

#include "compile/compiler.h"

namespace kiln::compile {

// `plan` null: nothing is recorded.
Tensors run_forward(RankContext& ctx, const CompiledRegion& region, const RegionPlan* plan, int in_place,
                    const RegionInputs& in);

}  // namespace kiln::compile
