// The forms in which `kiln bench op` shows and stores a report.
#pragma once

#include <string>
#include <vector>

#include "kiln/bench_op.h"

namespace kiln::cli {

std::string bench_text(const BenchReport& report);
std::string bench_markdown(const BenchReport& report);
std::string bench_csv(const BenchReport& report);
std::string bench_json(const BenchReport& report);

// Lines for results.jsonl: the rows that passed their check and were timed.
std::vector<std::string> result_lines(const BenchReport& report, const std::string& command);

}  // namespace kiln::cli
