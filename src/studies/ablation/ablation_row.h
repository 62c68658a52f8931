// One row of `kiln ablate`: planned on meta, judged by the gate, then timed.
#pragma once

#include <array>
#include <map>
#include <optional>

#include "studies/ablation/ablation.h"
#include "studies/place.h"
#include "device/out_of_memory.h"
#include "perf/timing/op_times.h"

namespace kiln::cli {

// The formats in which some row computes its products.
inline constexpr std::array kAblationDTypes = {DType::f32, DType::bf16};

// The ceilings a row is predicted by, as it stores them, and read back; nothing where there are none.
nlohmann::json ceilings_row(const Ceilings& ceilings);
std::optional<Ceilings> stored_ceilings(const nlohmann::json& row);

class AblationRows {
 public:
  AblationRows(const AblateRequest& request, MeasuredPlace place);

  // The line for results.jsonl; nothing where it was stopped on the way. `before` has all switches but this
  // row's own: a row that runs the same ops in the same way is none.
  std::optional<std::string> measure(const PlannedRow& row, const PlannedRow* before);

  const MeasuredPlace& place() const { return place_; }

 private:
  struct Plan {
    AblationSetup setup;
    MemoryStats memory;
    std::vector<TimedOp> ops;
    std::map<std::string, std::string> variants;  // of each op
  };
  Plan plan(const std::vector<std::string_view>& on) const;
  RankOptions rank_for(const AblationSetup& setup) const;
  double floor_ms(const Plan& plan);
  Rates rates(Precision p) const;
  nlohmann::ordered_json described(const PlannedRow& row, const Plan& plan) const;
  const GateProbe& baseline();
  bool judge(const PlannedRow& row, const Plan& plan, nlohmann::ordered_json& line);
  bool time(const PlannedRow& row, const Plan& plan, nlohmann::ordered_json& line);
  // The baseline, to take turns with the row; null where that is not to be.
  std::unique_ptr<RankContext> baseline_beside(const PlannedRow& row, const Plan& plan);
  bool asked_to_stop() const { return request_.stop && request_.stop(); }

  AblateRequest request_;
  MeasuredPlace place_;
  std::shared_ptr<const TokenSet> tokens_;
  std::optional<GateProbe> baseline_;  // once it is asked for
  Timing timing_;                      // of the row under way
  OutOfMemory full_;                   // of the same
};

}  // namespace kiln::cli
