// Does an optimized step learn as the baseline does? Both train on the same text from the same weights and
// batches for hundreds of steps, and their losses lie in one picture. The gate of `kiln ablate`
// (quality_gate.h) asks the same of a few steps, before each row; this is the long answer.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/stop.h"
#include "model/model_options.h"
#include "report/tables/study_page.h"
#include "studies/ablation/ablation_switches.h"

namespace kiln {

struct QualityRequest {
  NamedModel size = {};
  int64_t batch = 8, context = 64;
  int micro_steps = 1;
  int steps = 300;
  double tolerance = 0.02;             // of the loss: the largest difference of two windows' means
  std::vector<std::string_view> only;  // switches of the optimized step
  Device device;
  int threads = 0;
  uint64_t seed = 0;
  StopAsked stop = nullptr;
};

struct QualityReport {
  QualityRequest request;
  std::string differences;                  // what the optimized step runs with
  std::vector<double> baseline, optimized;  // losses, step by step
  double baseline_seconds = 0, optimized_seconds = 0;

  int window() const;          // steps whose losses are averaged before they are compared
  double worst() const;        // difference of two windows' means, as a share of the baseline's
  int64_t worst_step() const;  // the last one of that window
  double last_baseline() const;
  double last_optimized() const;
  bool passed() const { return worst() <= request.tolerance; }
};

// Throws Stopped where it was stopped: half of a curve is compared with nothing.
QualityReport quality_curves(const QualityRequest& request,
                             const std::function<void(const std::string&)>& progress);

std::span<const ColumnForm> quality_columns();
StudyPage quality_page(const QualityReport& report);
std::string quality_svg(const QualityReport& report);
std::string quality_result_line(const QualityReport& report);

}  // namespace kiln
