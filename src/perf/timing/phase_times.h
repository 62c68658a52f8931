// Forward, backward and the update of a training step, timed separately without splitting the step: an
// observer puts a mark where the first op of the next phase begins. Two marks a step cost nothing that could
// be measured. In a captured step the marks are captured too, and every replay passes them.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "autograd/op_observer.h"
#include "autograd/rank_context.h"
#include "perf/timing/timing.h"
#include "perf/trace/step_phase.h"

namespace kiln {

class PhaseTimes final : public OpObserver {
 public:
  explicit PhaseTimes(RankContext& ctx);  // watches while it lives; attach before the step is captured
  ~PhaseTimes() override;
  PhaseTimes(const PhaseTimes&) = delete;
  PhaseTimes& operator=(const PhaseTimes&) = delete;

  void begin_step();
  // Waits for the step; seconds of each phase, which add up to all of it.
  std::array<double, kStepPhases> end_step();

  void on_op_begin(RankContext& ctx, const OpEvent& event) override;

 private:
  struct Mark {
    std::unique_ptr<TimingEvent> event;
    StepPhase next = StepPhase::forward;  // the phase that begins here
  };
  RankContext& ctx_;
  StepPhase phase_ = StepPhase::forward;
  std::unique_ptr<TimingEvent> begin_, end_;
  std::vector<Mark> marks_;
  std::size_t used_ = 0;
  bool fresh_ = true;  // no op of this step was seen: a replay, whose marks are those of the capture
};

// Samples of each phase, and of the step by the host's clock with a device synchronization on both sides.
struct PhaseTimings {
  std::array<std::optional<Timing>, kStepPhases> phases;
  Timing host;
  bool captured = false;
};

}  // namespace kiln
