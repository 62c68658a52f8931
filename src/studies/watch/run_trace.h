// The traced steps of a run, in its folder: a page that opens offline, and a trace for Perfetto.
#pragma once

#include <string>
#include <vector>

#include "train/run/trace_hook.h"

namespace kiln {

// The files' paths.
std::vector<std::string> write_run_trace(const std::string& run, const RunTrace& trace);

}  // namespace kiln
