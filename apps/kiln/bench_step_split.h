// Where a step's milliseconds go. On the CPU an observer times each op; on a GPU the records of the kernels
// are asked, while the very graphs of the timed steps replay.
#pragma once

#include <optional>
#include <vector>

#include "perf/kernel_split.h"
#include "perf/op_times.h"
#include "perf/step_run.h"

namespace kiln::cli {

struct StepSplit {
  std::vector<TimedOp> ops;            // on the CPU
  std::optional<KernelSplit> kernels;  // on a GPU

  double ops_ms() const;
};

// Medians over some steps.
StepSplit split_by_ops(RankContext& ctx, const StepSpec& spec);

// Means over some steps. `times` was made before the context's graphs are captured.
StepSplit split_by_kernels(RankContext& ctx, const StepSpec& spec, KernelTimes& times);

}  // namespace kiln::cli
