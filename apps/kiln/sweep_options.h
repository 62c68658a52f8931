// --grid on every bench command: the options, and how a sweep's cells become command lines.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kiln/cmd.h"
#include "studies/sweep/grid.h"
#include "report/tables/text_table.h"

namespace kiln::cli {

struct SweepOptions {
  std::vector<std::string> grid;
  std::string timeout = "600";
  bool fresh = false;
  bool dry_run = false;  // read and check everything, measure nothing

  bool asked() const { return !grid.empty(); }
};

// Adds --grid, --cell-timeout, --fresh and --dry-run to the command.
std::shared_ptr<SweepOptions> add_sweep_options(CLI::App* command);

// Runs the sweep that `command` was given, prints its page in `format` and throws where a cell failed.
// `sizes` are keys of the grid that go into --shape: those of the op. `own` are axes the command has by
// itself, behind those of --grid.
void run_bench_sweep(const SweepOptions& options, const CLI::App& command, const CommonOptions& common,
                     PageFormat format, const std::vector<std::string>& sizes = {},
                     const std::vector<GridAxis>& own = {});

// "bench", "step", "--batch=4": the command as it was typed, without what belongs to the sweep and to its
// page.
std::vector<std::string> shared_words(const CLI::App& command, const CommonOptions& common);

// The rest of a cell's command line.
std::vector<std::string> cell_words(const CLI::App& command, const GridCell& cell,
                                    const std::vector<std::string>& sizes);

}  // namespace kiln::cli
