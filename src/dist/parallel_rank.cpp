#include "dist/launch/parallel_rank.h"

#include "dist/comm/local_transport.h"
#include "dist/strategy/mesh_strategy.h"

namespace kiln {
namespace {

Mesh mesh_of(RankContext& ctx, Communicator& all, int columns) {
  if (columns == 1) return {};
  const int rows = columns < 1 ? 0 : all.world() / columns;
  if (!ctx.device().is_meta()) return make_mesh(ctx, all, rows, columns);
  // No other ranks to agree with: groups of the sizes they would have.
  const auto group = [&](int rank, int world) {
    return std::make_unique<Communicator>(ctx, make_meta_transport(rank, world, all.options()),
                                          all.options());
  };
  Mesh mesh{rows, columns, all.rank() / columns, all.rank() % columns, nullptr, nullptr};
  mesh.along_row = group(mesh.column, columns);
  mesh.along_column = group(mesh.row, rows);
  return mesh;
}

}  // namespace

ParallelRank::ParallelRank(RankContext& ctx, Communicator& all, int tensor_ranks, std::string_view strategy,
                           const StrategyOptions& options)
    : all_(all),
      mesh_(mesh_of(ctx, all, tensor_ranks)),
      strategy_(make_strategy(strategy, options, ctx, data())) {
  if (!mesh_.along_row) return;
  tensor_ = std::make_unique<TensorParallel>(ctx, *mesh_.along_row);
  strategy_ = std::make_unique<MeshStrategy>(ctx, *mesh_.along_row, std::move(strategy_));
}

}  // namespace kiln
