// What a step will take on the machine in front of us, asked before it runs: its ops as meta planned them, at
// the times a calibration has of such calls.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "perf/model/machine.h"
#include "perf/model/time_model.h"

namespace kiln {

class StepPredictor {
 public:
  // `folder`: where `kiln doctor --calibrate` put its file; empty: nothing is predicted, and nothing said.
  StepPredictor(const std::string& folder, const Device& device, int threads);

  // None without a calibration of such a machine and format.
  std::optional<StepTime> predict(std::span<const TimedOp> ops, DType compute, bool graph);
  bool calibrated() const { return known_.hardware && known_.hardware->calibration; }
  const std::string& note() const { return known_.note; }  // why not, or how to renew it; or empty

 private:
  KnownMachine known_;
  std::map<DType, TimeModel> models_;
};

}  // namespace kiln
