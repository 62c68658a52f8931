#include "dist/launch/parallel_rank.h"

#include "dist/strategy/mesh_strategy.h"

namespace kiln {
namespace {

Mesh mesh_of(RankContext& ctx, Communicator& all, int tensor_ranks) {
  if (tensor_ranks == 1) return {};
  return make_mesh(ctx, all, tensor_ranks < 1 ? 0 : all.world() / tensor_ranks, tensor_ranks);
}

}  // namespace

ParallelRank::ParallelRank(RankContext& ctx, Communicator& all, int tensor_ranks, std::string_view strategy,
                           const StrategyOptions& options)
    : all_(all),
      mesh_(mesh_of(ctx, all, tensor_ranks)),
      strategy_(make_strategy(strategy, options, ctx, data())) {
  if (!mesh_.tp_group) return;
  tensor_ = std::make_unique<TensorParallel>(ctx, *mesh_.tp_group);
  strategy_ = std::make_unique<MeshStrategy>(ctx, *mesh_.tp_group, std::move(strategy_));
}

}  // namespace kiln
