// The three phases of a step, as the rank declares them: recomputation for
// backward is work of backward. The place of an op in the model is its scope.
#pragma once

#include <string_view>

namespace kiln {

class RankContext;

enum class StepPhase { forward, backward, update };
inline constexpr int kStepPhases = 3;
std::string_view name_of(StepPhase p);  // forward, backward, optimizer

StepPhase phase_of(const RankContext& ctx);

}  // namespace kiln
