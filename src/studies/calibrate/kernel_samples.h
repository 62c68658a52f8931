// Steps of a calibration on a GPU: each op's kernels, as they ran in a replayed graph or launched one by one.
#pragma once

#include "studies/calibrate/samples.h"

namespace kiln {

// Error(unavailable) where CUPTI cannot say what ran.
TimedStep time_by_kernels(const StepSamplesRequest& request, const CalibrationStep& step, int steps);

// What each op of a traced step took of the device's time, in ms, in the order of the ops: from the moment
// the device had done everything before it, or its first kernel began, to the end of its last. Kernels that
// overlap are not counted twice; what is left of the step is gaps.
std::vector<double> device_ms_of_ops(const Trace& trace);

}  // namespace kiln
