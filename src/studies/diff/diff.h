// The work of `kiln diff`: two rows of `kiln compare` or `kiln measure`, and which ops, causes and tags make
// the difference of their time and of their peak. Every list of parts sums to the whole.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "perf/timing/statistics.h"

namespace kiln {

// ms, B less A.
struct CauseChange {
  std::string name;  // "work" is the roofline's part; others as gap.h names them
  double ms = 0;
};

// Calls of an op in one pass, in both rows or in one.
struct OpChange {
  std::string op, pass;
  std::string variant_a, variant_b;  // "packed+small_m" where there are several; empty: not in that row
  std::optional<double> a, b;        // ms
  Comparison significance;           // of the steps' samples: is B faster or slower?
  std::vector<CauseChange> causes;   // the largest first; they sum to ms()

  double ms() const { return b.value_or(0) - a.value_or(0); }
  bool noise() const { return !significance.significant(); }
};

// Bytes, B less A. The last is what tags' peaks, each at its own moment, have over the step's.
struct TagChange {
  std::string tag;
  double a = 0, b = 0;
  double bytes() const { return b - a; }
};

struct StepDiff {
  std::string differs_a, differs_b;  // "preset=baseline": what the rows do not share
  double a = 0, b = 0;               // ms of a step
  Comparison significance;
  std::vector<OpChange> ops;        // the largest change first; they sum to ms()
  std::vector<CauseChange> causes;  // of the whole step, likewise
  std::vector<TagChange> tags;      // they sum to peak_b - peak_a
  double peak_a = 0, peak_b = 0;

  double ms() const { return b - a; }
};

// `by_turns`: the samples were taken alternately. Error for a row that is none of the two commands, was not
// timed, or whose gate was not passed.
StepDiff diff_rows(const Json& a, const Json& b, bool by_turns);

// "runs/results.jsonl#3" is the third row of a file, "#-1" the last one; without a number it is the last of
// `compare` or `measure`. A folder stands for its results.jsonl, nothing before # for `folder`'s.
Json stored_row(const std::string& text, const std::string& folder);

}  // namespace kiln
