// What a row of `bench step` consists of, and the page its rows make.
#pragma once

#include <string>
#include <vector>

#include "report/tables/study_page.h"
#include "studies/step/step.h"

namespace kiln {

std::span<const ColumnForm> step_columns();

// Its first columns: what was run, what became of it, its predicted peak. Of every study of one rank's steps.
std::span<const ColumnForm> step_setup_forms();
Json step_setup_json(const std::string& device, const StepRow& row);

StudyPage step_page(const BenchStepReport& report, bool wide = false);

// For results.jsonl.
std::vector<std::string> step_result_lines(const BenchStepReport& report);

}  // namespace kiln
