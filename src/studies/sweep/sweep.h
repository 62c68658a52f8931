// A sweep: one command, run once for each cell of a grid, each time in its own process. A cell that
// hangs, crashes or finds no memory is a row like the others, and every cell starts from a cold program, as
// if it had been typed alone. Rows are in runs/results.jsonl as soon as their cell is done, marked with the
// cell's id: a stopped sweep resumes from them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "rows/row_status.h"
#include "studies/sweep/grid.h"

namespace kiln {

// What became of one run of the command.
struct CellRun {
  std::vector<Json> rows;  // as it stored them
  int status = 0, signal = 0;
  bool timed_out = false, stopped = false;
  double seconds = 0;
  std::string reason;  // its last word, where it has no rows
};

struct SweepRequest {
  std::string command;            // "bench step"
  std::vector<std::string> args;  // all of the command line that the cells share
  std::vector<GridAxis> axes;
  std::string place;     // device and build: rows of others do not count
  std::string out;       // the folder of results.jsonl
  double timeout = 600;  // seconds, of a cell
  bool fresh = false;    // measure again what is stored
};

struct SweepCell {
  // ok: some row of it is. interrupted: the sweep was stopped before its end. The others have a reason.
  // unavailable: this machine or build lacks something, and no other cell suffers from it.
  GridCell values;
  std::string id;
  RowStatus status = RowStatus::interrupted;
  bool reused = false;  // its rows were stored by an earlier sweep
  double seconds = 0;
  std::string reason;
  std::vector<Json> rows;  // of one that is not ok: a single one that says so, or those that do
};

struct SweepReport {
  std::string command;
  std::vector<GridAxis> axes;
  std::vector<SweepCell> cells;
  std::vector<std::string> notes;

  std::vector<Json> rows() const;  // of all cells
  bool stopped() const;            // before its last cell
  bool any_done() const;
};

struct SweepTools {
  std::function<CellRun(const GridCell& cell)> run;
  std::function<void(const std::string&)> progress;
  std::function<bool()> stop;
};

// 16 hexadecimal digits of all that decides a cell's figures.
std::string cell_id(const SweepRequest& request, const GridCell& cell);

SweepReport run_sweep(const SweepRequest& request, const SweepTools& tools);

}  // namespace kiln
