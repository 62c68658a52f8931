#include "dist/comm/mesh.h"

#include "dist/comm/local_transport.h"

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
  if (ctx.device().is_meta()) {  // nobody to agree with, but the sizes are known
    auto group = [&](int rank, int world) {
      return std::make_unique<Communicator>(ctx, make_meta_transport(rank, world, all.options()),
                                            all.options());
    };
    mesh.along_row = group(mesh.column, columns);
    mesh.along_column = group(mesh.row, rows);
    return mesh;
  }
  mesh.along_row = all.split(ctx, mesh.row, mesh.column);
  mesh.along_column = all.split(ctx, mesh.column, mesh.row);
  return mesh;
}

}  // namespace kiln
