// `kiln bench step`: the whole training step, timed.
#pragma once

#include <functional>

#include "kiln/cmd.h"

namespace kiln::cli {

// Adds the study to `kiln bench`. What it returns runs it if it was asked for, and says whether it was.
std::function<bool()> add_bench_step(CLI::App& app, const CommonOptions& common);

}  // namespace kiln::cli
