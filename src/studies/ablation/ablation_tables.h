// What rows of `kiln ablate` say together, of one study: how much faster each optimization makes the step,
// what memory it takes, and what the gate saw. All of it is made of the stored rows, by the command itself
// and by `kiln report` alike.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "perf/timing/statistics.h"
#include "report/tables/text_table.h"

namespace kiln {

struct AblationLine {
  nlohmann::json row;
  std::string label;       // "baseline", "bf16", "+bf16"
  Comparison speed;        // against the baseline; where the two took turns, turn by turn. The same where the
                           // baseline against itself is as far off
  double baseline_ms = 0;  // the median of the samples it is compared with
  double predicted = 0;    // the same ratio of the times predicted by the same ceilings; 0: there is none
  double memory = 0;       // its peak over the baseline's; 0 where there is none
  bool timed() const;      // and so passed by the gate
  double peak_mib() const;
  std::string gate_word() const;  // in place of a time: "OOM", "gate failed"
  std::string why() const;        // where it was not: "not available: cpu cannot capture a step; ..."
};

// The latest row of each place in the study, in the order of the study.
std::vector<AblationLine> ablation_lines(std::span<const nlohmann::json> rows);

TextTable speedup_table(std::span<const AblationLine> lines);
TextTable ablation_memory_table(std::span<const AblationLine> lines);
TextTable gate_table(std::span<const AblationLine> lines);

// Conclusions and reservations, a sentence each, without a full stop.
std::vector<std::string> ablation_sentences(std::span<const AblationLine> lines);

nlohmann::ordered_json speedups_json(std::span<const AblationLine> lines);

}  // namespace kiln
