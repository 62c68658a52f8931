// The gate in front of every time of a training step: what is about to be timed is compared with its
// definition. First each op, at the shape in which the step calls it (step_cases.h); then the step they make
// together (composed_step.h). docs/measuring.md says what that finds and costs.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/stop.h"
#include "rows/row_status.h"
#include "studies/gate/composed_step.h"
#include "studies/gate/gate_cache.h"
#include "studies/gate/step_cases.h"

namespace kiln {

struct GateReport {
  Gate gate = Gate::not_verified;
  std::string reason;  // where it did not pass: op, shape, error and what is allowed
  Finding worst;       // of all ops: the one closest to its limit
  std::string worst_op;
  int checks = 0, cached = 0;
  double seconds = 0;

  bool passed() const { return gate == Gate::passed; }
};

// Into the row: false where it must not be timed.
bool note_gate(const GateReport& report, RowOutcome& row);

// What is to be timed.
struct GatedStep {
  StepSpec spec;
  RankOptions rank;
  std::vector<TimedOp> planned = {};  // every op that it runs, from meta
  std::optional<TuneFile> tuning = {};
  StopAsked stop = nullptr;  // asked between checks; true: throws Stopped
};

class StepGate {
 public:
  using Progress = std::function<void(const std::string&)>;

  // `folder`: where results go, and the cache with them; empty: none is kept.
  StepGate(const std::string& folder, Progress progress);

  // Throws where memory runs out.
  GateReport check(const GatedStep& step);
  // The ops alone: for a step that is compared as a whole elsewhere.
  GateReport check_ops(const GatedStep& step);

 private:
  bool check_all_ops(const GatedStep& step, GateReport& report);
  bool check_composed(const GatedStep& step, GateReport& report);
  const GateProbe& reference(const RankOptions& rank, const StepSpec& composed);

  Progress progress_;
  GateCache cache_;
  std::map<std::string, GateProbe> references_;  // by what they are of
};

}  // namespace kiln
