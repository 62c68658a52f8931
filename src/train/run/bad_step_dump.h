// What a step that was not finite was made of, as files that other programs read.
#pragma once

#include <string>

#include "train/step.h"

namespace kiln {

// Into RUN/non-finite/step-00000007/, for each rank of its own: rank-0.safetensors with the micro-batches and
// the first tensor that was not finite, and rank-0.json with the rest. Returns the folder.
std::string dump_bad_step(const std::string& run, int rank, const BadStep& bad);

}  // namespace kiln
