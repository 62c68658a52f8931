// How long an all-reduce takes between ranks: every rank runs it, and each sample is the slowest rank's.
#pragma once

#include <vector>

#include "dist/comm/communicator.h"
#include "perf/timing/timing.h"

namespace kiln {

struct AllReduceTiming {
  Timing timing;                              // seconds; of each call the slowest rank's
  double fastest_rank = 0, slowest_rank = 0;  // the ranks' own medians
  bool right = false;                         // every rank got the sums
};

struct AllReduceWork {
  int64_t count = 0;
  DType dtype = DType::f32;
  int warmups = 5;
  int most_samples = 30, least_samples = 5;
  double seconds = 3;  // of samples, where so many have been taken
};

// On every rank; whole on each. Ranks start each call at a barrier, and wait for the device after it.
AllReduceTiming time_all_reduce(RankContext& ctx, Communicator& ranks, const AllReduceWork& work);

}  // namespace kiln
