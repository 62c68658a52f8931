// Ranks as a grid, for two kinds of parallelism at once: rank = row x columns + column.
#pragma once

#include <memory>

#include "dist/comm/communicator.h"

namespace kiln {

struct Mesh {
  int rows = 1, columns = 1;
  int row = 0, column = 0;                     // this rank's place
  std::unique_ptr<Communicator> along_row;     // the ranks of this row, by column
  std::unique_ptr<Communicator> along_column;  // the ranks of this column, by row
};

// Every rank of `all` calls it. Throws Error(usage) on every rank where they do not fill the grid.
Mesh make_mesh(RankContext& ctx, Communicator& all, int rows, int columns);

}  // namespace kiln
