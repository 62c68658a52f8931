// Configurations planned, checked and timed call by call, several of them by turns: what `kiln measure`,
// `compare` and `diff` are made of.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "studies/measure/call_times.h"
#include "studies/step/step.h"

namespace kiln {

// Calls of one op, variant and pass, together.
struct OpCalls {
  std::string_view op, variant, pass;  // pass: forward, backward, recomputed, update
  std::vector<std::size_t> calls;      // which of the step's
  Cost cost;
};
std::vector<OpCalls> group_calls(std::span<const TimedOp> ops);  // in the order they first ran

// Of a rank of several, whose calls are not timed one by one.
struct RankShare {
  std::string strategy;
  int ranks = 1;
  Cost executed;
  int op_calls = 0;
  double sent = 0;  // bytes a step
};

struct MeasuredStep {
  StepRow row = {};                   // its timing is of the steps below
  std::vector<TimedOp> ran = {};      // every call, as an observer saw it; no times
  std::vector<StepCalls> steps = {};  // none where calls could not be timed
  int launches = 0;                   // kernels of a step, on a GPU
  double attributed = 1;              // of the kernels' time, whose op is known
  double load = 0;                    // of the machine, when the steps began

  std::optional<RankShare> share = {};

  bool timed() const { return row.timed(); }
  Cost executed() const;  // of a rank
  int op_calls() const { return share ? share->op_calls : static_cast<int>(ran.size()); }
  int64_t tokens() const { return row.tokens() * (share ? share->ranks : 1); }
  // Milliseconds of these calls in each step, with what passed before them.
  std::vector<double> samples_of(const OpCalls& calls) const;
};

struct MeasureRequest {
  BenchStepRequest step = {};  // its lists give the rows; its warm-ups and steps are those of each row
  double seconds = 2;          // a row gets fewer steps where they take longer together; at least 3
  std::string strategy = "none";
  int ranks = 1;         // threads of this process, each with --batch sequences
  bool by_calls = true;  // on a GPU: kernel by kernel, which needs CUPTI; else the step alone is timed
};

using Progress = std::function<void(const std::string&)>;

// Throws Error for what cannot be timed here.
void check_measure(const MeasureRequest& request);

// Rows of one request or of several, each behind the gate; those that pass are timed by turns where
// `by_turns`, else one after another. An op without a cost is an Error.
std::vector<MeasuredStep> measure_steps(std::span<const MeasureRequest> requests, bool by_turns,
                                        const Progress& progress);

// What the smallest op takes here by the clock that times calls, in ms.
double smallest_call_ms(const RankOptions& rank);

// Processes that want to run, over the last minute; 0: not known.
double load_average();

// Throws for one that states neither operations nor bytes, naming it.
void check_costs(std::span<const TimedOp> ops);

}  // namespace kiln
