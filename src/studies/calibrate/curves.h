// What timed steps say of a machine: a curve for each kind of call, the cost of what lies between calls, and
// how well steps of some models tell the time of another.
#pragma once

#include <functional>
#include <span>

#include "perf/model/time_model.h"
#include "studies/calibrate/samples.h"

namespace kiln {

// Which steps count.
using KeepStep = std::function<bool(const CalibrationStep&)>;
bool keep_all(const CalibrationStep& step);

// Calls of one shape are one point: the median over all steps.
std::vector<CallCurve> curves_of(std::span<const TimedStep> steps, const KeepStep& keep = keep_all);

// Of steps that are replayed as graphs, or of those that are not: seconds between two calls, and once a step.
// Least squares, neither below 0.
struct GapFit {
  double call = 0, step = 0;
};
GapFit fit_gaps(std::span<const TimedStep> steps, bool graph, const KeepStep& keep = keep_all);

// The standard deviation of a step over its mean: the median of all.
double spread_of(std::span<const TimedStep> steps);

// How much faster or slower the same models were in a later round than in their first: a machine that changes
// its speed between rounds cannot be predicted better than that.
struct RoundDrift {
  double least = 1, most = 1;  // of later / first
  int models = 0;              // that were timed more than once
  bool steady() const;
};
RoundDrift drift_of(std::span<const TimedStep> steps);

// The fit's part of a calibration: curves, gaps, spread.
Calibration fitted(std::span<const TimedStep> steps, const KeepStep& keep = keep_all);

// The time of each model predicted from all others: what the design itself says of its accuracy.
struct OwnError {
  double median = 0, worst = 0;  // of |predicted / measured - 1|
  int steps = 0;
};
OwnError leave_one_out(const Hardware& hardware, std::span<const TimedStep> steps);

}  // namespace kiln
