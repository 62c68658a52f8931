// The three phases a step is told in, from what the rank says it is about: work that is done again for
// backward is work of backward. Where in the model an op stands is another question, which its scope answers.
#pragma once

#include <string_view>

namespace kiln {

class RankContext;

enum class StepPhase { forward, backward, update };
inline constexpr int kStepPhases = 3;
std::string_view name_of(StepPhase p);  // forward, backward, optimizer

StepPhase phase_of(const RankContext& ctx);

}  // namespace kiln
