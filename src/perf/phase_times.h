// Forward, backward and the update of a training step, timed apart without taking the step apart: an observer
// puts a mark where the first op of the next phase begins. Two marks a step cost nothing that could be
// measured. In a captured step the marks are captured too, and every replay passes them.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "autograd/op_observer.h"
#include "autograd/rank_context.h"
#include "perf/timing.h"

namespace kiln {

enum class StepPart { forward, backward, update };
inline constexpr int kStepParts = 3;
std::string_view name_of(StepPart p);  // forward, backward, optimizer

// Follows the ops of a step. Work that is done again for backward belongs to backward; the scalars of a
// step's record belong to the phase they stand in; after backward an op of another micro-step's forward
// begins a forward again, anything of the optimizer the update.
class PhaseWatch {
 public:
  StepPart phase() const { return phase_; }
  void begin_step() { phase_ = StepPart::forward; }
  bool advance(const OpEvent& event);  // did a phase begin with this op?

 private:
  StepPart phase_ = StepPart::forward;
};

class PhaseTimes final : public OpObserver {
 public:
  explicit PhaseTimes(RankContext& ctx);  // watches while it lives; attach before the step is captured
  ~PhaseTimes() override;
  PhaseTimes(const PhaseTimes&) = delete;
  PhaseTimes& operator=(const PhaseTimes&) = delete;

  void begin_step();
  // Waits for the step; seconds of each phase, which add up to all of it.
  std::array<double, kStepParts> end_step();

  void on_op_begin(RankContext& ctx, const OpEvent& event) override;

 private:
  struct Mark {
    std::unique_ptr<TimingEvent> event;
    StepPart next = StepPart::forward;  // the phase that begins here
  };
  RankContext& ctx_;
  PhaseWatch watch_;
  std::unique_ptr<TimingEvent> begin_, end_;
  std::vector<Mark> marks_;
  std::size_t used_ = 0;
  bool fresh_ = true;  // no op of this step was seen: a replay, whose marks are those of the capture
};

// Samples of each phase, and of the step by the host's clock with the device waited for on both sides.
struct PhaseTimings {
  std::array<std::optional<Timing>, kStepParts> phases;
  Timing host;
  bool captured = false;
};

}  // namespace kiln
