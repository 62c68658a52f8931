// What a row of `bench step` consists of, and the page its rows make.
#pragma once

#include <string>
#include <vector>

#include "report/tables/study_page.h"
#include "studies/step/step.h"

namespace kiln {

std::span<const ColumnForm> step_columns();

StudyPage step_page(const BenchStepReport& report, bool wide = false);

// For results.jsonl.
std::vector<std::string> step_result_lines(const BenchStepReport& report);

}  // namespace kiln
