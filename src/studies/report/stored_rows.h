// Rows of `bench step` and `memory` as a report shows them: the latest of each kind, with times, peaks, what
// was predicted and the floor side by side.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "report/charts/bar_chart.h"
#include "report/result_table.h"

namespace kiln {

// Of rows that measured the same thing in the same way the one stored last, where it stood first.
std::vector<nlohmann::json> latest_rows(std::span<const nlohmann::json> rows);

// Beside the columns of words that are always there, one for each other thing that decides a figure and is
// not the same in all rows: no two rows look alike.
ResultTable step_rows_table(std::span<const nlohmann::json> rows);
ResultTable memory_rows_table(std::span<const nlohmann::json> rows);

BarChart step_rows_chart(std::span<const nlohmann::json> rows);
BarChart memory_rows_chart(std::span<const nlohmann::json> rows);

}  // namespace kiln
