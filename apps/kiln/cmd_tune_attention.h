// `kiln tune attention`: the fastest tiles for shapes of attention, by measurement.
#pragma once

#include <functional>

#include "kiln/cmd.h"

namespace kiln::cli {

// Adds it to `kiln tune`, whose own options are there already. What it returns runs it if it was asked for,
// and says whether it was.
std::function<bool()> add_tune_attention(CLI::App& tune, const CommonOptions& common);

}  // namespace kiln::cli
