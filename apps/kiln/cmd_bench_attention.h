// `kiln bench attention`, `kiln bench flash` and `kiln bench leaderboard`: attention, timed by itself.
#pragma once

#include <functional>

#include "kiln/cmd.h"

namespace kiln::cli {

// Each adds its study to `kiln bench`. What it returns runs it if it was asked for, and says whether it was.
std::function<bool()> add_bench_attention(CLI::App& app, const CommonOptions& common);
std::function<bool()> add_bench_flash(CLI::App& app, const CommonOptions& common);
std::function<bool()> add_bench_leaderboard(CLI::App& app, const CommonOptions& common);

}  // namespace kiln::cli
