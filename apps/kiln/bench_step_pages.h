// The forms in which `kiln bench step` shows and stores a report.
#pragma once

#include <string>
#include <vector>

#include "studies/step/step.h"
#include "report/tables/text_table.h"

namespace kiln::cli {

std::string step_text(const BenchStepReport& report);
std::string step_markdown(const BenchStepReport& report);
std::string step_csv(const BenchStepReport& report);
std::string step_latex(const BenchStepReport& report);
std::string step_json(const BenchStepReport& report);
std::string step_page(const BenchStepReport& report, PageFormat format);

// Lines for results.jsonl: rows that were timed, and rows that found no memory.
std::vector<std::string> step_result_lines(const BenchStepReport& report);

}  // namespace kiln::cli
