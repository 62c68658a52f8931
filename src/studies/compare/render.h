// The pages of `kiln compare`, its stored row, and the columns of its parts, which `kiln diff` reads again.
#pragma once

#include <string>
#include <vector>

#include "report/tables/study_page.h"
#include "studies/compare/compare.h"

namespace kiln {

std::span<const ColumnForm> compare_columns();  // of stored rows

StudyPage compare_page(const CompareReport& report, bool wide = false);
// For results.jsonl: a row for each step that was timed, or had no memory.
std::vector<std::string> compare_result_lines(const CompareReport& report);

// "12.3 G": figures of a table whose heading has the unit.
std::string prefixed_figure(double value);

// Each cause as {"name", "ms", "evidence"}.
Json causes_json(const Gap& gap);

}  // namespace kiln
