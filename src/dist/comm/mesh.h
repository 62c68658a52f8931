// Ranks as a grid, for two kinds of parallelism at once: rank = dp_rank x tp_size + tp_rank.
#pragma once

#include <memory>

#include "dist/comm/communicator.h"

namespace kiln {

struct Mesh {
  int dp_size = 1, tp_size = 1;
  int dp_rank = 0, tp_rank = 0;            // this rank's place
  std::unique_ptr<Communicator> tp_group;  // ranks that hold one model between them, by tp_rank
  std::unique_ptr<Communicator> dp_group;  // ranks that hold the same shard of it, by dp_rank
};

// Every rank of `all` calls it. Throws Error(usage) on every rank where they do not fill the grid.
Mesh make_mesh(RankContext& ctx, Communicator& all, int dp_size, int tp_size);

}  // namespace kiln
