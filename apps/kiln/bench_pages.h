// The forms in which `kiln bench op` shows and stores a report.
#pragma once

#include <string>
#include <vector>

#include "studies/op/op.h"
#include "report/tables/text_table.h"

namespace kiln::cli {

std::string bench_text(const BenchReport& report);
std::string bench_markdown(const BenchReport& report);
std::string bench_csv(const BenchReport& report);
std::string bench_latex(const BenchReport& report);
std::string bench_json(const BenchReport& report);
std::string bench_page(const BenchReport& report, PageFormat format);

// Lines for results.jsonl: the rows that passed their check and were timed, and those without room.
std::vector<std::string> result_lines(const BenchReport& report, const std::string& command);

}  // namespace kiln::cli
