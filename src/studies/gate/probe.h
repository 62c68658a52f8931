// Is a faster step still the same step? The gate in front of every figure of `kiln ablate`: from the same
// weights and text, logits and gradients of the first step, and the loss after some steps of training, beside
// those of the baseline. Errors are relative: |a - b| / |b|, of vectors in the Euclidean norm.
#pragma once

#include <string>
#include <vector>

#include "studies/ablation/text_step.h"

namespace kiln {

struct ParamGradient {
  std::string name;
  std::vector<float> values;  // of a large parameter some thousands, evenly spaced
};

// What a setup computes.
struct GateProbe {
  std::vector<float> logits;  // of the start of the text, by the initial weights
  std::vector<ParamGradient> gradients;
  double first_loss = 0, last_loss = 0;
  int steps = 0;
};

// `steps`: of training, through the step itself, captured where the setup says so; two at least. A step is
// captured in its second run, and what that replay did to the weights shows in the loss of the third.
GateProbe probe_setup(RankContext& ctx, const AblationSetup& setup,
                      const std::shared_ptr<const TokenSet>& tokens, int steps);

// How far off each may be.
struct GateTolerance {
  double logits = 0, gradients = 0, loss = 0;

  friend GateTolerance operator*(GateTolerance t, double x) {
    return {t.logits * x, t.gradients * x, t.loss * x};
  }
};

// fp32 differs by the order of sums alone; bf16 keeps 8 bits of every product. docs/ablation.md has what was
// seen of correct code, a fifth of this or less.
GateTolerance tolerance_of(Precision p);

struct GateErrors {
  double logits = 0;
  double gradients = 0;        // of the parameter that is furthest off
  std::string worst_gradient;  // its name
  double loss = 0;
};

GateErrors errors_against(const GateProbe& baseline, const GateProbe& judged);

// Empty where all of them are inside, else what is not: "gradients of lm_head.weight are off by 0.31, ...".
std::string why_not_passed(const GateErrors& errors, const GateTolerance& allowed);

}  // namespace kiln
