// What rows of `kiln ablate` say together, of one study: how much faster each optimization makes the step,
// what memory it takes, and what the gate saw. All of it is made of the stored rows, by the command itself
// and by `kiln report` alike.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "perf/statistics.h"
#include "report/bar_chart.h"
#include "report/text_table.h"

namespace kiln {

struct AblationLine {
  nlohmann::json row;
  std::string label;        // "baseline", "bf16", "+bf16"
  Comparison speed;         // against the baseline; where the two took turns, by the samples of those
  double baseline_ms = 0;   // the median of those
  double predicted = 0;     // the same ratio of the predicted times; 0 where there is none
  double memory = 0;        // its peak over the baseline's; 0 where there is none
  bool timed() const;       // and so passed by the gate
  std::string why() const;  // where it was not: "not available: cpu cannot capture a step; ..."
};

// The latest row of each place in the study, in the order of the study.
std::vector<AblationLine> ablation_lines(std::span<const nlohmann::json> rows);

TextTable speedup_table(std::span<const AblationLine> lines);
TextTable ablation_memory_table(std::span<const AblationLine> lines);
TextTable gate_table(std::span<const AblationLine> lines);

// Conclusions and reservations, a sentence each, without a full stop.
std::vector<std::string> ablation_sentences(std::span<const AblationLine> lines);

BarChart speedup_chart(std::span<const AblationLine> lines);
BarChart ablation_memory_chart(std::span<const AblationLine> lines);

nlohmann::ordered_json speedups_json(std::span<const AblationLine> lines);

}  // namespace kiln
