// The models whose steps are timed to calibrate a machine: a few blocks each, of widths, lengths and
// vocabularies spread over what is used, and none of them a model known by name, so that a prediction is
// never read from its own measurement.
#pragma once

#include <span>
#include <vector>

#include "device/device.h"
#include "model/config.h"

namespace kiln {

struct CalibrationShape {
  int64_t d_model, d_ff, heads, layers, vocab;
  int64_t batch, context;

  int64_t tokens() const { return batch * context; }
};

ModelConfig config_of(const CalibrationShape& s);

// The cheapest first.
std::span<const CalibrationShape> calibration_shapes(DeviceType device);

}  // namespace kiln
