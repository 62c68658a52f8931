// Rows of `bench step` and `memory` as a report shows them: the latest of each kind, with times, peaks, what
// was predicted and the roofline side by side.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "report/charts/bar_chart.h"
#include "rows/schema.h"

namespace kiln {

// "cuda:0 (NVIDIA H200)"; and with the threads and the build.
std::string machine_of(const Json& row);
std::string place_of(const Json& row);

// Of rows that measured the same thing in the same way the one stored last, where it stood first.
std::vector<Json> latest_rows(std::span<const Json> rows);

// Beside the columns of words that are always there, one for each other thing that decides a figure and is
// not the same in all rows: no two rows look alike.
RowTable step_rows_table(std::span<const Json> rows);
RowTable memory_rows_table(std::span<const Json> rows);

BarChart step_rows_chart(std::span<const Json> rows);
BarChart memory_rows_chart(std::span<const Json> rows);

}  // namespace kiln
