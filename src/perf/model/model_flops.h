// The floating-point operations of one micro-step, from the ops' own cost functions: the model is run once on
// `meta`, so the figure is of exactly this model, shape and choice of variants, on any machine.
#pragma once

#include "model/config.h"

namespace kiln {

struct StepFlops {
  double forward = 0, backward = 0;
  double recomputed = 0;                               // forward work done again for backward
  double model() const { return forward + backward; }  // what a utilisation (MFU) counts
};

StepFlops micro_step_flops(const ModelConfig& config, int64_t batch, int64_t context);

}  // namespace kiln
