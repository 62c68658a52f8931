// How the studies of attention read which cells are wanted from their command lines.
#pragma once

#include <string>
#include <vector>

#include "studies/attention/cells.h"

namespace kiln::cli {

inline constexpr int64_t kLongestSequence = 1 << 24, kWidestHead = 4096;

// As typed; empty where an option was not given.
struct TypedCells {
  std::string table, batch, heads, seqs, ds, dtypes;
  bool causal = false, full = false;
};

// What was typed in place of what the grid has.
AttentionGrid read_grid(const TypedCells& t, AttentionGrid grid);

// Of --table grid, tokens16k or steps. A table's cells are what they are; --seq, --d, --causal and --full
// choose among them.
std::vector<AttentionCell> read_table(const TypedCells& t, const AttentionGrid& grid);

}  // namespace kiln::cli
