// Output of `kiln memory` and its studies (docs/memory.md lists the keys of their JSON).
#pragma once

#include <string>
#include <vector>

#include "report/charts/svg_parts.h"
#include "report/tables/study_page.h"
#include "studies/memory/memory.h"

namespace kiln {

StudyPage memory_page(const MemoryReport& report, bool wide = false);
std::vector<std::string> memory_result_lines(const MemoryReport& report);

// Why a tag holds more or less under `b` than under `a`.
std::string reason_for(Tag tag, const PrecisionPolicy& a, const PrecisionPolicy& b);

// What other precisions change of the first one's peaks; and one of these changes as a table.
Json precision_changes(const MemoryReport& report);
PageTable change_table(const Json& change);

StudyPage scaling_page(const ScalingReport& report);
// Activations' peaks, and the score matrices in them, over the length of a sequence.
std::vector<NamedChart> scaling_charts(const ScalingReport& report);

StudyPage recompute_page(const RecomputeReport& report);
std::vector<NamedChart> recompute_charts(const RecomputeReport& report);

}  // namespace kiln
