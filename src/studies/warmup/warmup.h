// The work of `kiln bench warmup` for one number of warm-ups: the steps of a cold program, and where the
// first one's excess went.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "perf/timing/host_load.h"
#include "studies/step/step.h"
#include "studies/warmup/warmup_study.h"

namespace kiln {

struct WarmupRequest {
  BenchStepRequest step = {.graph = GraphChoice::off};  // one row's worth
  double context_seconds = 0;                           // until the device was there
  std::function<void(const std::string&)> progress = nullptr;
};

struct WarmupReport {
  std::string device, device_name, isa;
  HostLoad load;  // while it was measured
  int threads = 1;
  StepRow row;  // its timing: the steps after the warm-ups, by the host's clock
  double context = 0;
  WarmupRun run;
};

WarmupReport bench_warmup(const WarmupRequest& request);

}  // namespace kiln
