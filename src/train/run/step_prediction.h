// What a step of a run will take, before its first one.
#pragma once

#include <optional>
#include <string>

#include "train/memory_prediction.h"

namespace kiln {

// Seconds, by the calibration of this machine in `results`; none without one, and for ranks that share a
// step, whose link no calibration of one machine knows (`kiln plan` does).
std::optional<double> predict_step(const MemoryRequest& request, const RankOptions& rank,
                                   const std::string& results);

}  // namespace kiln
