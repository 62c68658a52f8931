// The work of `kiln doctor --calibrate`: what no data sheet says of this machine, measured in about a minute
// and kept as a hardware file. No model known by name is among those that are timed.
#pragma once

#include <functional>
#include <string>

#include "perf/model/machine.h"
#include "perf/timing/host_load.h"
#include "report/tables/study_page.h"
#include "studies/calibrate/curves.h"

namespace kiln {

struct CalibrateRequest {
  Device device;
  int threads = 0;
  double seconds = 60;  // of timed steps
  uint64_t seed = 0;
  std::function<bool()> stop = nullptr;
};

struct CalibrateReport {
  Hardware hardware;
  std::string path;  // of the file, once it is written
  OwnError own;
  RoundDrift drift;
  int steps = 0, skipped = 0;  // models that were timed, in one round each, and that were not
  double seconds = 0;          // it took
  HostLoad load = {};          // what else the machine did meanwhile
  bool stopped = false;        // before its end: there is no calibration
};

// Throws Error(usage) for meta, which runs nothing.
CalibrateReport calibrate(const CalibrateRequest& request,
                          const std::function<void(const std::string&)>& progress);

// Into the folder of results, whole or not at all. Its path.
std::string write_calibration(const std::string& folder, const CalibrateReport& report);

StudyPage calibrate_page(const CalibrateReport& report, bool wide);

}  // namespace kiln
