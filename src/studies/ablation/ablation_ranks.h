// FSDP among the optimizations. It takes several ranks, so it is measured against data parallelism on the
// same ranks: threads of one process that share one device. What it saves in memory is real there; its time
// says nothing of an interconnect.
#pragma once

#include <functional>
#include <optional>

#include "base/json.h"
#include "studies/ablation/ablation.h"
#include "studies/place.h"

namespace kiln {

inline constexpr int kAblationRanks = 2;

// The line for results.jsonl; nothing where it was stopped on the way. `all`: with every other optimization.
std::optional<Json> measure_on_ranks(const AblateRequest& request, const PlannedRow& planned,
                                     const MeasuredPlace& place,
                                     const std::function<void(const std::string&)>& progress);

}  // namespace kiln
