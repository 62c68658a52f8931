// How long calls of one kind take, from those a calibration has timed: a sum of what a kernel spends on the
// call, its operations, bytes, rows and operands, each at a rate of its own; and what calls of about this
// shape took beside that.
#pragma once

#include <optional>
#include <vector>

#include "perf/model/calibration.h"
#include "perf/model/smooth_fit.h"

namespace kiln {

class CallTime {
 public:
  explicit CallTime(const CallCurve& curve);

  double seconds(const CallShape& shape) const;
  // How far the nearest timed call is: in logarithms of rows, columns and work an element.
  double distance(const CallShape& shape) const;

 private:
  double sum(const CallShape& shape) const;

  std::vector<double> rates_;        // seconds a unit of each term
  std::optional<SmoothFit> beside_;  // of log(seconds / sum)
};

}  // namespace kiln
