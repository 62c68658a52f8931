// The work of `kiln measure`: what steps of any configuration executed, moved, called, held and took.
#pragma once

#include <string>
#include <vector>

#include "perf/timing/host_load.h"
#include "report/tables/study_page.h"
#include "studies/measure/measured_step.h"

namespace kiln {

struct MeasureReport {
  std::string device, device_name, isa;
  int threads = 1;
  HostLoad load = {};  // what else the machine did meanwhile
  std::vector<MeasuredStep> steps;
};

MeasureReport measure(const MeasureRequest& request, const Progress& progress);

std::span<const ColumnForm> measure_columns();  // of stored rows
StudyPage measure_page(const MeasureReport& report, bool wide = false);
std::vector<std::string> measure_result_lines(const MeasureReport& report);

}  // namespace kiln
