// The studies of `kiln precision` for a terminal and as JSON.
#pragma once

#include <string>

#include "perf/accumulate_study.h"

namespace kiln::cli {

std::string accumulate_text(const AccumulateReport& report);
std::string accumulate_json(const AccumulateReport& report);

}  // namespace kiln::cli
