// What a training step computes, and how far that is from what another one computes: loss, logits, gradients
// by tensor and updated weights. Errors are relative: |a - b| / |b|, of vectors in the Euclidean norm.
#pragma once

#include <string>
#include <vector>

#include "autograd/precision.h"
#include "autograd/rank_context.h"
#include "model/model.h"

namespace kiln {

struct ParamGradient {
  std::string name;
  std::vector<float> values;  // of a large parameter some thousands, evenly spaced
};

// What a setup computes.
struct GateProbe {
  std::vector<float> logits;  // by the initial weights
  std::vector<ParamGradient> gradients;
  std::vector<ParamGradient> updates;  // what the first update added to each weight; none: not looked at
  double first_loss = 0, last_loss = 0;
  int steps = 0;
};

// Of some token ids, [rows, columns].
std::vector<float> probe_logits(RankContext& ctx, const Model& model, const std::vector<int32_t>& ids,
                                int64_t rows);
// Gradients as they are after a step, times `factor`: the update reads them, no more.
std::vector<ParamGradient> probe_gradients(RankContext& ctx, ParamStore& params, double factor = 1);
// Exact weights.
std::vector<ParamGradient> probe_weights(RankContext& ctx, ParamStore& params);

// How far off each may be.
struct GateTolerance {
  double logits = 0, gradients = 0, loss = 0;
  double updates = 0;  // the first of Adam's has the size of the learning rate whatever the gradient's

  friend GateTolerance operator*(GateTolerance t, double x) {
    return {t.logits * x, t.gradients * x, t.loss * x, t.updates * x};
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
  double updates = 0;  // of the parameter that is furthest off
  std::string worst_update;
};

GateErrors errors_against(const GateProbe& baseline, const GateProbe& judged);

// Empty where all of them are inside, else what is not: "gradients of lm_head.weight are off by 0.31, ...".
std::string why_not_passed(const GateErrors& errors, const GateTolerance& allowed);

}  // namespace kiln
