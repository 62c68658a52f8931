// Steps of a machine's calibration, timed op by op: what its curves and its costs between ops are fitted to.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "perf/model/hardware.h"
#include "studies/calibrate/design.h"
#include "studies/step/step.h"

namespace kiln {

// How a model of the design is run.
struct CalibrationStep {
  int shape = 0;  // of calibration_shapes()
  Precision precision = Precision::fp32;
  std::string preset = "optimized";

  StepSpec spec(DeviceType device) const;
  RankOptions rank(const Device& device, int threads, uint64_t seed) const;
};

// Every model of the design in the formats and presets that steps are mostly run with, the cheapest first.
std::vector<CalibrationStep> calibration_steps(const Device& device);

// One of them, in one round.
struct TimedStep {
  CalibrationStep step;
  std::vector<TimedOp> ops;     // each with the median over the steps of the round
  std::vector<double> seconds;  // of the steps: by the host's clock, or the device's
  bool graph = false;           // replayed
};

struct StepSamplesRequest {
  Device device;
  Hardware hardware;  // with the rates of this machine, measured before
  int threads = 0;
  uint64_t seed = 0;
  double seconds = 60;  // of all; models that would take longer than what is left are skipped
  std::function<bool()> stop = nullptr;
};

struct Samples {
  std::vector<TimedStep> steps;
  int skipped = 0;  // models, for want of time or memory
  bool stopped = false;
};

// In two rounds over all models, so that a machine that is slow for a while is slow for all of them once.
Samples take_samples(const StepSamplesRequest& request,
                     const std::function<void(const std::string&)>& progress);

}  // namespace kiln
