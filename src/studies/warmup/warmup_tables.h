// What rows of `bench warmup` say: the times of every step for each number of warm-ups, and where the first
// step's excess went.
#pragma once

#include <span>

#include "base/json.h"
#include "report/tables/text_table.h"

namespace kiln {

// A line for each row: its steps, warm-ups in brackets, and its mean against the row with most warm-ups.
TextTable warmup_table(std::span<const Json> rows);

// Of the row with fewest warm-ups: a line for each part, before and in the first step, with its share.
TextTable first_step_table(std::span<const Json> rows);

}  // namespace kiln
