// The policy of --recompute budget:SIZE, for a step that a study runs or only plans.
#pragma once

#include "perf/memory/recompute_choice.h"
#include "perf/model/step_clock.h"
#include "studies/step/synthetic_step.h"

namespace kiln {

// The step on meta with each policy; seconds by the clock.
PolicyChoice choose_policy(const StepSpec& spec, const RankOptions& rank, std::size_t budget,
                           const StepClock& clock);

// Puts what is chosen in the place of a budget, and says so in a sentence; of any other policy nothing.
// Throws Error(usage), with the least bytes, where nothing reaches the budget.
std::string resolve_policy(StepSpec& spec, const RankOptions& rank, const StepClock& clock);
std::string resolve_policy(StepSpec& spec, const RankOptions& rank, const std::string& folder);

}  // namespace kiln
