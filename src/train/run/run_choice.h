// What `--fit` and `--recompute budget:SIZE` come to: chosen by the first rank before anything is allocated,
// kept in run.json, and taken from there when the run is resumed.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "train/run/train.h"
#include "train/step_choice.h"

namespace kiln {

// Whether there is anything to choose.
bool asks_for_choice(const TrainRequest& request);

// `step`: the run's own, its model without a policy yet. Throws Error(usage), with the least memory there is,
// where nothing fits.
RunChoice choose_for_run(const TrainRequest& request, const MemoryRequest& step, const RankOptions& rank,
                         std::size_t free_memory, const StepClock& clock);

// The request with it.
void take_choice(const RunChoice& choice, TrainRequest& request);

// For run.json, and for the other ranks.
Json choice_json(const TrainRequest& asked, const RunChoice& choice);
std::string choice_text(const RunChoice& choice);
RunChoice parse_choice(const std::string& text);

// Of an earlier part of the run in `folder`, where the same was asked for.
std::optional<RunChoice> stored_choice(const TrainRequest& asked);

}  // namespace kiln
