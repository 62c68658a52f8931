// Where a run stands, from what its folder holds: the figures of kiln watch, of the page while it trains, and
// of --json.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "studies/watch/run_reader.h"

namespace kiln {

// starting: before its first figures. stopped: nobody trains it, and steps are missing. quiet: who trains it
// cannot be told from here (another machine may), and nothing has come for a while.
enum class RunState { starting, training, quiet, stopped, finished };
std::string_view name_of(RunState state);

struct TimeLeft {
  double seconds = 0, error = 0;  // two standard errors
};

// Of the steps that are left, by the recent ones: their mean, pauses for validation and saving with it, and
// how much the means of pieces of them differ. Nothing before there are enough.
std::optional<TimeLeft> time_left(const std::deque<RecentStep>& recent, int64_t steps_left);

struct RunSummary {
  std::string run;
  RunState state = RunState::starting;
  WatchedFacts facts;
  RunTally tally;
  int64_t step = 0;
  // Over the recent steps; nothing where there are none.
  std::optional<double> step_ms, tokens_per_s, of_peak, data_wait, mean_loss;
  std::optional<TimeLeft> left;
  double silent_seconds = 0;

  // Predicted over measured, less one.
  std::optional<double> prediction_error() const;
};

RunSummary summarize_run(const RunReader& reader);

// The document of --json. Keys of figures that are not known are there, and null.
Json summary_json(const RunSummary& summary);

}  // namespace kiln
