// A step of several ranks, measured as a whole: time of the slowest, memory of the one that needs most, what
// a rank executes and sends.
#pragma once

#include "studies/measure/measured_step.h"

namespace kiln {

// Error(usage) for ranks or a mode that no strategy takes.
void check_measured_ranks(const MeasureRequest& request);

// Of a row whose step has passed its gate by itself. Its losses are compared with those of another strategy,
// which must come to the same; where they do not, the row says so and has no times.
void time_ranks_of(const MeasureRequest& request, MeasuredStep& step, const Progress& progress);

}  // namespace kiln
