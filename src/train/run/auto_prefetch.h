// --fsdp-prefetch auto: the depth predicted from the link, the times of ops, and the memory a slot costs.
#pragma once

#include <string>

#include "autograd/rank_context.h"
#include "dist/comm/communicator.h"
#include "train/memory_prediction.h"
#include "train/run/train.h"

namespace kiln {

struct AutoPrefetch {
  int depth = 1;
  std::string why;  // "2: 0.41 ms exposed of 3.20 ms communication, ..."
};

// Collective: all ranks take what the first has found. `memory`: the run's, but for the depth. `free_memory`:
// of this rank's device, for each rank on it. Throws Error(unavailable) where nothing is known of the link.
AutoPrefetch auto_prefetch(const TrainRequest& request, const MemoryRequest& memory, RankContext& ctx,
                           Communicator& comm, double free_memory);

}  // namespace kiln
