// Checks every collective on this machine. The hello world of several ranks.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "dist/comm/communicator.h"

namespace kiln {

struct CollectiveCheck {
  std::string collective;
  DType dtype = DType::f32;
  int64_t count = 0;
  std::vector<int> wrong;  // ranks that got something else
  double seconds = 0;      // of the slowest rank, the first call of its kind
};

struct CollectivesReport {
  std::string transport;
  int world = 1;
  std::vector<std::array<int, 3>> before, after;  // each rank's numbers, and what an all-reduce made of them
  std::vector<CollectiveCheck> checks;

  bool passed() const;
};

// On every rank; the report is whole on rank 0.
CollectivesReport check_collectives(RankContext& ctx, Communicator& ranks, uint64_t seed);

}  // namespace kiln
