// Notes below a table of attention: why a row was not timed, how stable its times are, how memory grows.
#pragma once

#include <string>
#include <vector>

#include "studies/attention/attention.h"

namespace kiln {

std::vector<std::string> attention_notes(const AttentionReport& report);

}  // namespace kiln
