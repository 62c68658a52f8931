// What a step of a run will take, before its first one.
#pragma once

#include <optional>

#include "train/memory_prediction.h"
#include "train/run/train.h"

namespace kiln {

// Seconds, by the calibration of this machine in the run's folder of results; of several ranks also by their
// link, which has to be modelled, measured or calibrated. None where one of these is not known. `rank`: one
// of the run's.
std::optional<double> predict_run_step(const TrainRequest& run, const MemoryRequest& request,
                                       const RankOptions& rank);

}  // namespace kiln
