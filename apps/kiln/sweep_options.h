// --grid on every bench command: the options, and how a sweep's cells become command lines.
#pragma once

#include <string>
#include <vector>

#include "kiln/command.h"
#include "report/tables/text_table.h"
#include "studies/sweep/grid.h"

namespace kiln::cli {

struct SweepOptions {
  std::vector<std::string> grid;
  double timeout = 600;
  bool fresh = false;
  bool dry_run = false;   // read and check everything, measure nothing
  bool meta_too = false;  // of a command that has rows on meta

  bool asked() const { return !grid.empty(); }
};

// --grid, --cell-timeout, --fresh and --dry-run. Of a command that has a --fresh already that one stays: it
// says whether rows of a cell are taken from what is stored.
void add_sweep_options(Command& command, SweepOptions& sweep);

// A command as a sweep sees it.
struct SweptOption {
  std::vector<std::string> names;  // without dashes
  bool flag = false, given = false;
};
struct SweptCommand {
  std::vector<std::string> args;  // "bench", "step", "--batch=4": as typed, without what is the sweep's own
  std::vector<SweptOption> options;
  std::string exported;  // of --export
};
SweptCommand swept(const Command& command, const CommonOptions& common);

// What a cell does not inherit: the sweep itself, how its page is written, where its rows go.
bool belongs_to_the_sweep(std::string_view name);

// Runs the sweep that `command` was given, prints its page in `format` and throws where a cell failed.
// `sizes` are keys of the grid that go into --shape: those of the op. `own` are axes the command has by
// itself, behind those of --grid.
void run_bench_sweep(const SweepOptions& options, const SweptCommand& command, const CommonOptions& common,
                     PageFormat format, const std::vector<std::string>& sizes = {},
                     const std::vector<GridAxis>& own = {});

// The rest of a cell's command line.
std::vector<std::string> cell_args(const SweptCommand& command, const GridCell& cell,
                                   const std::vector<std::string>& sizes);

}  // namespace kiln::cli
