#include "perf/trace/step_phase.h"

#include <array>

#include "autograd/rank_context.h"

namespace kiln {

std::string_view name_of(StepPhase p) {
  constexpr std::array<std::string_view, kStepPhases> kNames = {"forward", "backward", "optimizer"};
  return kNames[static_cast<std::size_t>(p)];
}

StepPhase phase_of(const RankContext& ctx) {
  switch (ctx.phase()) {
    case Phase::update:
      return StepPhase::update;
    case Phase::backward:
    case Phase::recompute:
      return StepPhase::backward;
    case Phase::setup:
    case Phase::forward:
      break;
  }
  return StepPhase::forward;
}

}  // namespace kiln
