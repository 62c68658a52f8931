// Is a faster step still the same step? The gate in front of every figure of `kiln ablate`: from the same
// weights and text, logits and gradients of the first step, and the loss after some steps of training,
// against those of the baseline. Errors are relative: |a - b| / |b|, of vectors in the Euclidean norm.
#pragma once

#include <memory>

#include "base/stop.h"
#include "studies/ablation/text_step.h"
#include "studies/gate/probe.h"

namespace kiln {

// `steps`: of training, through the step itself, captured where the setup says so; two at least. A step is
// captured in its second run, and what that replay did to the weights shows in the loss of the third.
// `stop` is asked between them; where it says so, Stopped is thrown.
GateProbe probe_setup(RankContext& ctx, const AblationSetup& setup,
                      const std::shared_ptr<const TokenSet>& tokens, int steps,
                      const StopAsked& stop = nullptr);

}  // namespace kiln
