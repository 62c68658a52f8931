// What a sweep answers: its rows as one table, and what they say together.
#pragma once

#include <string>

#include "studies/sweep/sweep.h"
#include "report/tables/text_table.h"

namespace kiln::cli {

std::string sweep_page(const SweepReport& report, PageFormat format);

}  // namespace kiln::cli
