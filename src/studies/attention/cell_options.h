// The options that choose cells of attention, shared by all its studies: sizes for a custom
// grid, or a table of sizes and a choice among its cells.
#pragma once

#include <vector>

#include "base/options.h"
#include "studies/attention/cells.h"

namespace kiln {

inline constexpr int64_t kLongestSequence = 1 << 24, kWidestHead = 4096;

// automatic: a grid where a size is given, else the shapes of training steps.
enum class CellTable { automatic, grid, tokens16k, steps };
inline constexpr NamedValue<CellTable> kCellTables[] = {
    {"grid", CellTable::grid}, {"tokens16k", CellTable::tokens16k}, {"steps", CellTable::steps}};

struct CellOptions {
  AttentionGrid grid = {};  // what it holds before options are read are their defaults
  CellTable table = CellTable::grid;
  bool causal = false, full = false;
};

// --batch, --heads, --seq, --d, --dtype, --causal and --full; --table is the study's own, where it has any.
void add_cell_options(Options& options, CellOptions& cells);

// A table's cells are what they are; --seq, --d, --causal and --full choose among them.
std::vector<AttentionCell> cells_of(const CellOptions& cells, const Options& options);

}  // namespace kiln
