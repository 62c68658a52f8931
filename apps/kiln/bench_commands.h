// The studies of `kiln bench`, each declared in its cmd_bench_<name>.cpp.
#pragma once

#include "kiln/command.h"

namespace kiln::cli {

void add_bench_allreduce(Command& bench, const CommonOptions& common);
void add_bench_ddp(Command& bench, const CommonOptions& common);
void add_bench_fsdp(Command& bench, const CommonOptions& common);
void add_bench_step(Command& bench, const CommonOptions& common);
void add_bench_warmup(Command& bench, const CommonOptions& common);
// Attention, timed by itself.
void add_bench_attention(Command& bench, const CommonOptions& common);
void add_bench_flash(Command& bench, const CommonOptions& common);
void add_bench_leaderboard(Command& bench, const CommonOptions& common);
void add_bench_zero(Command& bench, const CommonOptions& common);

}  // namespace kiln::cli
