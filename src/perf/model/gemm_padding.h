// Operations that a GEMM does past the edges of its matrices, because it computes whole tiles: from the
// kernel's own tile sizes. Of the CPU's packed GEMM, whose tiles are ours; a GPU's library keeps its own to
// itself.
#pragma once

#include "device/cpu/isa.h"
#include "perf/timing/op_times.h"

namespace kiln {

// Of one call of `linear`: all operations it does, over those asked for. 1 for calls of which it is not
// known.
double tile_ratio(const TimedOp& op, DType compute, CpuIsa isa);

}  // namespace kiln
