// The update of a step as cases: the optimizer on the flat buffers, and the ops that make the step's record.
#pragma once

#include "studies/gate/step_cases.h"

namespace kiln {

void add_update_cases(const StepSpec& spec, const RankOptions& rank, std::vector<StepCase>& cases);

}  // namespace kiln
