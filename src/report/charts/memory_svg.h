// The timeline of a record of allocations as one SVG: bytes in use stacked by tag, phases shaded, peaks
// labelled.
#pragma once

#include <string>

#include "perf/memory/memory_analysis.h"

namespace kiln {

std::string memory_svg(const MemoryRecord& record, const MemoryAnalysis& analysis, const std::string& title);

// "#4477aa": the colour of a tag in every chart.
std::string_view colour_of(Tag tag);
std::string_view colour_of(Phase phase);

}  // namespace kiln
