// Traced steps as a timeline: the ranges and ops of the host, the kernels of the GPU under the same ranges,
// copies, communication, and the memory in use.
#pragma once

#include <string>
#include <vector>

#include "perf/trace/trace.h"

namespace kiln {

// The text of a Chrome trace; `title` names the process in it.
std::string step_timeline(const std::vector<Trace>& steps, const std::string& title, int rank = 0);

}  // namespace kiln
