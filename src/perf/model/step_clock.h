// Seconds of a step that is only planned, by what is known of the machine: predicted where it is calibrated,
// else the roofline of its hardware file, or, of a machine nobody has described, of nominal rates, which
// order choices but time nothing.
#pragma once

#include <optional>
#include <string>

#include "perf/model/time_model.h"

namespace kiln {

struct StepClock {
  TimeModel model;
  bool nominal = false;
  std::string from;  // what it goes by: "hardware/h200", "nominal rates"
  std::string note;  // why its times are bounds, or may be off, and what renews them; or empty

  std::string_view kind() const { return nominal ? "nominal roofline" : name_of(model.kind()); }
  // The same machine multiplying in another format; in fp32 where it has no rate of it.
  StepClock for_compute(DType compute) const;
  double seconds(std::span<const TimedOp> ops, bool graph = false) const {
    return model.step(ops, graph).total();
  }
  // Of a step that multiplies in `compute`; none where nothing was measured of such a machine and format.
  std::optional<StepTime> predict(std::span<const TimedOp> ops, DType compute, bool graph) const;
  bool calibrated() const { return model.hardware().calibration.has_value(); }
};

// Of the machine here; `folder` has results of `kiln doctor --calibrate`, if any. Meta is its target.
StepClock clock_of(const std::string& folder, const Device& device, int threads, DType compute);
StepClock clock_of(Hardware hardware, DType compute);

}  // namespace kiln
