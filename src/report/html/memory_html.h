// A record of allocations as one HTML page that needs no network: the timeline on a canvas, to be zoomed, and
// what was in use at any moment, with its origin. Made for a million events.
#pragma once

#include <string>

#include "perf/memory/memory_analysis.h"
#include "perf/memory/memory_snapshot.h"

namespace kiln {

void write_memory_html(const MemoryRecord& record, const MemoryAnalysis& analysis, const std::string& title,
                       const TextSink& sink);

}  // namespace kiln
