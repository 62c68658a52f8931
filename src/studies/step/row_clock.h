// The clock of `kiln bench step`: the steps of a row, in blocks, so that rows that are compared can take
// turns.
#pragma once

#include <chrono>
#include <memory>

#include "device/out_of_memory.h"
#include "studies/step/step.h"

namespace kiln {

class PhaseSamples;
class StreamMarks;

class RowClock {
 public:
  using Clock = std::chrono::steady_clock;

  // Builds the model. The clock of the first step stood at `begun` already.
  RowClock(const BenchStepRequest& request, const RankOptions& rank, OutOfMemory& full, StepRow& row,
           Clock::time_point begun);
  ~RowClock();
  RowClock(const RowClock&) = delete;
  RowClock& operator=(const RowClock&) = delete;

  void warm_up();
  // Queued one behind the other, as in a run. `after_others`: the device worked for another row since.
  void time(int steps, bool after_others);
  // Fills in what was measured of the row, and frees the model.
  void finish();

 private:
  void step(bool counts);
  void time_phases();

  const BenchStepRequest& request_;
  StepRow& row_;
  Clock::time_point begun_;
  RankContext ctx_;
  std::unique_ptr<PhaseSamples> phases_;
  std::unique_ptr<SyntheticStep> step_;
  std::unique_ptr<StreamMarks> marks_;
  std::vector<double> samples_;
  int count_ = 0, timed_ = 0;
  double wall_ = 0;
};

}  // namespace kiln
