// Attention by parts: what its scores, its softmax and its last matmul cost, at the shape of a step.
#pragma once

#include "studies/profile/profile.h"

namespace kiln {

// From the step's own trace where it ran them as ops; else by running `composed` separately, one layer of it.
// `times` is the CUPTI that traced the step, where it was CUPTI.
AttentionStudy study_attention(const StepProfile& profile, const RankOptions& rank,
                               const TraceOptions& options, KernelTimes* times);

}  // namespace kiln
