#include "dist/comm/mesh.h"

#include "dist/comm/local_transport.h"

namespace kiln {

Mesh make_mesh(RankContext& ctx, Communicator& all, int dp_size, int tp_size) {
  if (dp_size < 1 || tp_size < 1 || int64_t{dp_size} * tp_size != all.world())
    throw Error(
        cat("a mesh of ", dp_size, " x ", tp_size, " ranks does not hold the ", all.world(), " of this run"),
        "data ranks x tensor ranks must be the number of ranks", ErrorKind::usage);
  Mesh mesh{dp_size, tp_size, all.rank() / tp_size, all.rank() % tp_size, nullptr, nullptr};
  if (ctx.device().is_meta()) {  // no rank to agree with, but the sizes are known
    auto group = [&](int rank, int world) {
      return std::make_unique<Communicator>(ctx, make_meta_transport(rank, world, all.options()),
                                            all.options());
    };
    mesh.tp_group = group(mesh.tp_rank, tp_size);
    mesh.dp_group = group(mesh.dp_rank, dp_size);
    return mesh;
  }
  mesh.tp_group = all.split(ctx, mesh.dp_rank, mesh.tp_rank);
  mesh.dp_group = all.split(ctx, mesh.tp_rank, mesh.dp_rank);
  return mesh;
}

}  // namespace kiln
