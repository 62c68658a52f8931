// Rows of `bench step` and `memory` as a report shows them: the latest of each kind, with times, peaks, what
// was predicted and the floor side by side.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "report/bar_chart.h"
#include "report/text_table.h"

namespace kiln {

// Of rows that measured the same thing in the same way the one stored last, where it stood first.
std::vector<nlohmann::json> latest_rows(std::span<const nlohmann::json> rows);

inline constexpr std::size_t kStepWords = 8, kMemoryWords = 7;  // columns of words in the two tables
TextTable step_rows_table(std::span<const nlohmann::json> rows);
TextTable memory_rows_table(std::span<const nlohmann::json> rows);

BarChart step_rows_chart(std::span<const nlohmann::json> rows);
BarChart memory_rows_chart(std::span<const nlohmann::json> rows);

}  // namespace kiln
