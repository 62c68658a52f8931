// What a row of `bench op` consists of, and the page its rows make.
#pragma once

#include <string>
#include <vector>

#include "report/tables/study_page.h"
#include "studies/op/op.h"

namespace kiln {

std::span<const ColumnForm> op_columns();

StudyPage op_page(const BenchReport& report, bool wide = false);

// For results.jsonl: the rows that passed their check and were timed, and those out of memory.
std::vector<std::string> op_result_lines(const BenchReport& report, const std::string& command);

}  // namespace kiln
