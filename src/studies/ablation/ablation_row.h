// One row of `kiln ablate`: planned on meta, checked by the gate, then timed.
#pragma once

#include <array>
#include <optional>

#include "base/json.h"
#include "device/out_of_memory.h"
#include "perf/timing/op_times.h"
#include "studies/ablation/ablation_columns.h"
#include "studies/gate/gate.h"
#include "studies/place.h"
#include "studies/roofline.h"

namespace kiln {

// The dtypes in which some row computes its matmuls.
inline constexpr std::array kAblationDTypes = {DType::f32, DType::bf16};

// The ceilings of a row's rooflines, as it stores them, and read back; nothing where there are none.
Json ceilings_row(const Ceilings& ceilings);
std::optional<Ceilings> stored_ceilings(const Json& row);

class AblationRows {
 public:
  AblationRows(const AblateRequest& request, MeasuredPlace place, StepGate::Progress progress);

  // The line for results.jsonl; nothing where it was stopped on the way. `before` has all switches but this
  // row's own: a row that runs the same ops in the same way is none.
  std::optional<std::string> measure(const PlannedRow& row, const PlannedRow* before);

  const MeasuredPlace& place() const { return place_; }

 private:
  AblationPlan plan(const std::vector<std::string_view>& on) const;
  RankOptions rank_for(const AblationSetup& setup) const;
  double roofline_ms(const AblationPlan& plan);
  Rates rates(Precision p) const;
  const GateProbe& baseline();
  JudgedRow judge(const PlannedRow& row, const AblationPlan& plan);
  std::optional<TimedRow> time(const PlannedRow& row, const AblationPlan& plan);
  // Fills in what became of the row; false where it was stopped on the way.
  bool judge_and_time(AblationRow& row, const PlannedRow* before);
  // The baseline, to alternate with the row; null where it does not.
  std::unique_ptr<RankContext> baseline_beside(const PlannedRow& row, const AblationPlan& plan);
  bool asked_to_stop() const { return request_.stop && request_.stop(); }

  AblateRequest request_;
  MeasuredPlace place_;
  StepGate gate_;  // of each op at the timed shape; the step they make is judged on text
  std::shared_ptr<const TokenSet> tokens_;
  std::optional<GateProbe> baseline_;  // once it is requested
  OutOfMemory full_;                   // of the current row
};

}  // namespace kiln
