// Traced steps as a timeline: the ranges and ops of the host, the kernels of the GPU under the same ranges,
// copies, communication, and the memory in use.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "dist/comm/comm_call.h"
#include "perf/trace/trace.h"
#include "report/export/timeline.h"

namespace kiln {

struct TimelineOptions {
  int rank = 0;
  int64_t first_step = 1;                  // the number of the first of the steps
  std::span<const CommRecord> calls = {};  // of the communicator, where they are no spans of a step
};

Timeline step_timeline(const std::vector<Trace>& steps, const std::string& title,
                       const TimelineOptions& options = {});

}  // namespace kiln
