// Two tables for a terminal: a model's parameters next to the memory its run will take, and, when the run
// is over, the prediction next to what was measured.
#pragma once

#include <string>

#include "device/allocator.h"
#include "train/memory_prediction.h"

namespace kiln {

// Tags that hold nothing are left out. `tied`: the head's line says so.
std::string memory_table(const ParamGroups& params, bool tied, const MemoryStats& predicted);

// Every tag's peak, predicted and measured, and whether they are the same to the byte. A run that was stopped
// may not have come to its peak: then less is no difference.
std::string memory_comparison(const MemoryStats& predicted, const MemoryStats& measured, bool whole_run);

// "139.7 K", "5.247 M", "1.998 B": elements for people.
std::string human_count(int64_t n);

}  // namespace kiln
