// The work of `kiln bench warmup` for one number of warm-ups: the steps of a cold program, and where the
// first one's excess went.
#pragma once

#include <string>
#include <vector>

#include "studies/step/step.h"
#include "studies/warmup/warmup_study.h"
#include "report/tables/text_table.h"

namespace kiln::cli {

struct WarmupRequest {
  BenchStepRequest step;       // one row's worth
  double context_seconds = 0;  // until the device was there
};

struct WarmupReport {
  std::string device, device_name, isa;
  int threads = 1;
  StepRow row;  // its timing: the steps after the warm-ups, by the host's clock
  double context = 0;
  WarmupRun run;
};

WarmupReport bench_warmup(const WarmupRequest& request);

std::string warmup_page(const WarmupReport& report, PageFormat format);
std::vector<std::string> warmup_result_lines(const WarmupReport& report);

}  // namespace kiln::cli
