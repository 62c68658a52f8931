// kiln bench fsdp: did each gathered weight arrive in time?
#pragma once

#include <functional>

#include "kiln/cmd.h"

namespace kiln::cli {

// Adds the study to `bench`; the result runs it if it was asked for, and says whether it was.
std::function<bool()> add_bench_fsdp(CLI::App& app, const CommonOptions& common);

}  // namespace kiln::cli
