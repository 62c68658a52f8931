// What all ranks of a run can reach together, from what one of them reaches by itself.
#pragma once

#include "autograd/rank_context.h"

namespace kiln {

// Where the ranks are.
struct RankPlaces {
  int world = 1;
  int here = 1;            // of them on this machine; others hold as many
  bool processes = false;  // else threads of one process, which share its GPU
  int cores = 1;           // of this machine that may be used
  int gpus = 0;            // of this machine
};

RankPlaces rank_places(int world);

// CPU ranks of `threads` each share the cores of their machine; GPUs add theirs.
double peak_of_ranks(double of_one, DeviceType device, int threads, const RankPlaces& places);

// The GEMM rate all ranks can reach, in FLOP/s, measured now: in the dtype the model multiplies in. 0 where
// it is not known.
double measure_peak(RankContext& ctx, DType dtype);

}  // namespace kiln
