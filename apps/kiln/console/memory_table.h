// Two tables for a terminal: what a model is made of beside the memory its run will take, and, when the run
// is over, the prediction beside what was measured.
#pragma once

#include <string>

#include "device/allocator.h"
#include "train/memory_prediction.h"

namespace kiln {

// Tags that hold nothing are left out. `tied`: the head's line says so.
std::string memory_table(const ParamGroups& params, bool tied, const MemoryStats& predicted);

// Every tag's peak, predicted and measured, and whether they are the same to the byte.
std::string memory_comparison(const MemoryStats& predicted, const MemoryStats& measured);

// "139.7 K", "5.247 M", "1.998 B": elements for people.
std::string human_count(int64_t n);

}  // namespace kiln
