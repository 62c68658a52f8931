// The memory of the rank that needs most. Shards need not be even, and a job runs out of memory where it
// needs most.
#pragma once

#include "autograd/rank_context.h"
#include "dist/comm/communicator.h"

namespace kiln {

// Peaks so far and bytes in use, at three moments of a rank's life.
struct MemorySnapshots {
  MemoryStats after_init;   // weights, gradients and moments are there
  MemoryStats before_step;  // of the last warm-up: gradients are complete, the update begins
  MemoryStats after_step;
};

// All ranks call it, with their own `memory`; all get that of the rank with the highest peak, and its number.
void keep_largest_rank(RankContext& ctx, Communicator& comm, MemorySnapshots& memory, int& rank);

}  // namespace kiln
