// kiln bench allreduce: what sums over ranks cost.
#pragma once

#include <functional>

#include "kiln/cmd.h"

namespace kiln::cli {

// Adds the study to `bench`; the result runs it if it was asked for, and says whether it was.
std::function<bool()> add_bench_allreduce(CLI::App& app, const CommonOptions& common);

}  // namespace kiln::cli
