#include "dist/comm/mesh.h"

namespace kiln {

Mesh make_mesh(RankContext& ctx, Communicator& all, int rows, int columns) {
  if (rows < 1 || columns < 1 || int64_t{rows} * columns != all.world())
    throw Error(
        cat("a mesh of ", rows, " x ", columns, " ranks does not hold the ", all.world(), " of this run"),
        "rows x columns must be the number of ranks", ErrorKind::usage);
  Mesh mesh;
  mesh.rows = rows;
  mesh.columns = columns;
  mesh.row = all.rank() / columns;
  mesh.column = all.rank() % columns;
  mesh.along_row = all.split(ctx, mesh.row, mesh.column);
  mesh.along_column = all.split(ctx, mesh.column, mesh.row);
  return mesh;
}

}  // namespace kiln
