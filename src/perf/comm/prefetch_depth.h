// How many sharded weights should be gathered ahead of the one in use: the least depth at which a step is as
// short as further depth could make it. Each more costs a slot for a weight, and a gradient more in flight.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "perf/comm/gather_ledger.h"

namespace kiln {

struct PrefetchDepth {
  int depth = 0;
  double end = 0, exposed = 0, communication = 0;  // us, of all windows, by replay_gathers()
  int64_t bytes = 0;                               // more than depth 0 takes
};

struct PrefetchChoice {
  PrefetchDepth best;
  std::vector<PrefetchDepth> tried;  // from 0 on
  bool by_memory = false;            // the next depth would be quicker, and there is no memory for it

  std::string why() const;  // "2: 0.41 ms exposed of 3.20 ms communication, ..."
};

// A step counts as short as another where it is within this share of it.
inline constexpr double kPrefetchTolerance = 0.01;
inline constexpr int kDeepestPrefetch = 8;

// `free_bytes`: bytes that are free beside what depth 0 takes. `windows`: of a micro-step.
PrefetchChoice choose_prefetch(std::span<const GatherWindowTime> windows, int ranks,
                               const CallSeconds& seconds, int64_t free_bytes);

}  // namespace kiln
