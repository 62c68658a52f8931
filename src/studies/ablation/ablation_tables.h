// Results over all rows of one `kiln ablate` study: how much faster each optimization makes the step,
// what memory it takes, and the gate's errors. All of it is made from the stored rows, by the command itself
// and by `kiln report` alike.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "perf/timing/statistics.h"
#include "report/tables/text_table.h"
#include "rows/schema.h"

namespace kiln {

struct AblationLine {
  Json row;
  std::string label;  // "baseline", "bf16", "+bf16", "-bf16", "fsdp, 2 ranks"
  Comparison speed;   // against the baseline, all combined or ddp:naive, as the group is; where the two
                      // alternated, pair by pair. The same where the baseline against itself is as far off
  double baseline_ms = 0;   // the median of the samples it is compared with
  double own_roofline = 0;  // the same ratio of their own rooflines, by the same ceilings; 0: there is none
  double memory = 0;        // its peak over the baseline's; 0 where there is none
  bool timed() const;       // and so passed by the gate
  bool in_main_table() const;  // compared with the baseline on one rank
  double peak_mib() const;
  std::string gate_text() const;  // in place of a time: "OOM", "gate failed"
  Json figures() const;           // the row, and its comparisons with the others
  std::string why() const;        // where it was not: "not available: cpu cannot capture a step; ..."
};

// The latest row of each place in the study, in the order of the study.
std::vector<AblationLine> ablation_lines(std::span<const Json> rows);

// The columns of the page's first table, and of CSV: rows are those of AblationLine::figures().
std::vector<ColumnForm> ablation_main_columns();

TextTable speedup_table(std::span<const AblationLine> lines);
TextTable ablation_memory_table(std::span<const AblationLine> lines);
TextTable without_table(std::span<const AblationLine> lines);  // all combined but for one, against all
TextTable ranks_table(std::span<const AblationLine> lines);    // FSDP against ddp:naive on the same ranks
TextTable gate_table(std::span<const AblationLine> lines);

// Conclusions and reservations, a sentence each, without a full stop.
std::vector<std::string> ablation_sentences(std::span<const AblationLine> lines);

Json speedups_json(std::span<const AblationLine> lines);

}  // namespace kiln
