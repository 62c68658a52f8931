// The charts of an ablation: a bar for each row of its tables.
#pragma once

#include <span>

#include "report/charts/bar_chart.h"
#include "studies/ablation/ablation_tables.h"

namespace kiln {

BarChart speedup_chart(std::span<const AblationLine> lines);
BarChart ablation_memory_chart(std::span<const AblationLine> lines);

}  // namespace kiln
