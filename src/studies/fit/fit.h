// The work of `kiln fit`: what fits into a memory limit, from meta runs: the recompute policy that costs a
// step least, the largest batch, the longest context, the largest model known by name. With `confirm` the
// answer is run on the device, and its measured peak stands beside the predicted one.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/model_options.h"
#include "perf/model/hardware.h"
#include "report/tables/study_page.h"
#include "studies/step/step_policy.h"

namespace kiln {

struct FitRequest {
  NamedModel model = {};
  int64_t batch = 4, context = 512;
  int micro_steps = 1;
  Precision precision = Precision::bf16;
  std::string preset = "optimized", variants = {};
  std::size_t memory = 0;                 // the limit; 0: the hardware's, or what is free on the device
  std::optional<Hardware> hardware = {};  // instead of the machine here
  Device device = {};
  int threads = 0;
  uint64_t seed = 0;
  std::string folder = {};  // of results, where a calibration may be
  bool confirm = false;
};

enum class FitQuestion { as_asked, batch, context, model };
std::string_view name_of(FitQuestion q);  // "as asked", "largest batch", ...

struct FitRow {
  FitQuestion question = FitQuestion::as_asked;
  bool all_kept = false;  // asked of recompute none; else of any policy
  std::string size;
  StepSpec spec;
  PolicyPoint point;
  std::optional<MemoryStats> measured;
  int64_t tokens() const { return spec.step.batch * spec.step.context * spec.step.micro_steps; }
};

struct FitReport {
  FitRequest request;
  std::size_t memory = 0;
  std::string memory_from, clock, clock_from, clock_note, place;
  std::vector<FitRow> rows;
  std::vector<std::string> unanswered;  // a sentence for each question that nothing fits
  int probes = 0;                       // steps run on meta
};

// Throws Error for a model of which not even one sequence fits, with the least memory and what reaches it.
FitReport fit(const FitRequest& request, const std::function<void(const std::string&)>& progress);

StudyPage fit_page(const FitReport& report, bool wide);

}  // namespace kiln
