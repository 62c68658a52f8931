// The update of a step as cases: the optimizer on the flat buffers, and the ops that make the step's record.
#pragma once

#include <string_view>
#include <vector>

#include "studies/gate/step_cases.h"

namespace kiln {

// Throws where an optimizer's update has no definition here to be checked against.
void check_update_has_a_case(std::string_view optimizer);

void add_update_cases(const StepSpec& spec, const RankOptions& rank, std::vector<StepCase>& cases);

}  // namespace kiln
