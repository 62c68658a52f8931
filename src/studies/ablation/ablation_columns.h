// What a row of `kiln ablate` consists of, stated once: as it is measured and stored, and what the rows of a
// study give each other (speed-ups, memory against the baseline's), which is computed from the stored ones.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "perf/timing/op_times.h"
#include "rows/schema.h"
#include "studies/ablation/ablation.h"
#include "studies/place.h"

namespace kiln {

// A row as it would run, on meta.
struct AblationPlan {
  AblationSetup setup;
  MemoryStats memory;
  std::vector<TimedOp> ops;
  std::map<std::string, std::string> variants;  // of each op
};

struct JudgedRow {
  int steps = 0;
  GateErrors errors;
  GateTolerance allowed;
  double first_loss = 0, last_loss = 0;  // of the baseline
};

struct TimedRow {
  bool captured = false;
  Timing timing;
  std::vector<double> baseline;  // seconds of the baseline's alternating samples; empty where there are none
  Rates best;
  double roofline_ms = 0;
  MemoryStats memory;
};

struct AblationRow : RowOutcome {
  AblationRow(const AblateRequest& asked, const PlannedRow& row, const AblationPlan& on_meta,
              const Ceilings& here)
      : request(asked), planned(row), plan(on_meta), ceilings(here) {}

  const AblateRequest& request;
  const PlannedRow& planned;
  const AblationPlan& plan;
  const Ceilings& ceilings;
  std::optional<JudgedRow> judged;
  std::optional<TimedRow> timed;
};

Json ablation_row_json(const AblationRow& row);

// The columns of these keys, in this order.
std::vector<ColumnForm> ablation_columns(std::initializer_list<std::string_view> keys);

// In place of a time: "OOM", "gate failed", or the status.
std::string ablation_gate_text(const Json& row);

}  // namespace kiln
