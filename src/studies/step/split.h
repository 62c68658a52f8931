// Where a step's milliseconds go. On the CPU an observer times each op; on a GPU the step is traced as by
// `kiln profile`: launched once op by op, so that kernels are known by their ops, and where the timed steps
// replay graphs, replayed.
#pragma once

#include <optional>
#include <vector>

#include "studies/step/kernel_split.h"
#include "studies/step/traced_step.h"

namespace kiln {

struct StepSplit {
  std::vector<TimedOp> ops;            // on the CPU
  std::optional<KernelSplit> kernels;  // on a GPU
  double attributed = 1;               // share of the kernels' time whose op is known

  double ops_ms() const;
};

// Medians over some steps.
StepSplit split_by_ops(RankContext& ctx, const StepSpec& spec);

// Means over some steps. `times` watches the host's calls too.
StepSplit split_by_kernels(const RankOptions& rank, const std::optional<TuneFile>& tuning,
                           const StepSpec& spec, OutOfMemory& full, KernelTimes& times);

}  // namespace kiln
