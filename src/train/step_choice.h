// Choices that a memory limit asks for before a run: the recompute policy of a budget, and the micro-batch
// that is fastest for a global batch. By meta runs and a clock; nothing is allocated on the device.
#pragma once

#include "perf/memory/recompute_choice.h"
#include "perf/model/step_clock.h"
#include "train/memory_prediction.h"

namespace kiln {

// Of all micro-steps of the request, by the clock.
double step_seconds(const MemoryRequest& request, const StepPrediction& prediction, const StepClock& clock);

// request.model.recompute is not looked at.
PolicyChoice choose_policy(const MemoryRequest& request, const RankOptions& rank, std::size_t budget,
                           const StepClock& clock);

// A way to run the same global batch.
struct FittedStep {
  int64_t batch = 0;  // of a rank's micro-step
  int micro_steps = 1;
  PolicyPoint policy;
};

struct StepFit {
  std::optional<FittedStep> chosen;  // none: nothing fits
  FittedStep least;                  // the least memory there is
};

// Divides request.step.batch x micro_steps anew, so that the step fits into `memory` and is the fastest.
StepFit fit_step(const MemoryRequest& request, const RankOptions& rank, std::size_t memory,
                 const StepClock& clock);

// A change to a step that does not fit, so that it does.
struct WayOut {
  std::string options;  // "--batch 2 --grad-accum 4"
  std::size_t peak = 0;
  double seconds = 0;
};

// At most one of each kind, those that keep what is computed first.
std::vector<WayOut> ways_out(const MemoryRequest& request, const RankOptions& rank, std::size_t memory,
                             const StepClock& clock);
std::string ways_text(const std::vector<WayOut>& ways, const StepClock& clock);

}  // namespace kiln
