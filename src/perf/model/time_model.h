// What calls of ops, and the step they make, take on a machine that need not be here. `predicted` where its
// hardware file is calibrated: each call as such calls were measured, and what a step takes beside them. With
// the curves of another device a call is as far from its roofline as it is there. `roofline` where there is
// no calibration: a bound, and called so.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "perf/model/calibration.h"
#include "perf/model/call_time.h"
#include "perf/model/hardware.h"

namespace kiln {

enum class TimeKind { roofline, predicted };
std::string_view name_of(TimeKind k);

// Seconds.
struct StepTime {
  double ops = 0;      // of all calls
  double between = 0;  // between them, and once a step
  double unknown = 0;  // of `ops`: calls of a kind the calibration has not seen, at their class's distance
  double total() const { return ops + between; }
};

class TimeModel {
 public:
  // `compute`: the format the step multiplies in. Throws where the hardware has no rate for it.
  TimeModel(Hardware hardware, DType compute);
  ~TimeModel();
  TimeModel(TimeModel&&) noexcept;
  TimeModel& operator=(TimeModel&&) = delete;

  TimeKind kind() const { return calibrated() ? TimeKind::predicted : TimeKind::roofline; }
  bool calibrated() const;
  const Hardware& hardware() const { return hardware_; }
  const Rates& rates() const { return rates_; }

  double roofline(const Cost& cost) const;
  // Of one call. Its `ms` is not looked at.
  double seconds(const TimedOp& op) const;
  bool knows(const TimedOp& op) const;  // from calls of its own kind
  // One after another. `graph`: replayed as one.
  StepTime step(std::span<const TimedOp> ops, bool graph = false) const;

 private:
  const CallTime* calls_of(const TimedOp& op) const;
  double distance_of_class(OpClass c) const;

  Hardware hardware_;
  DType compute_;
  Rates rates_;
  Rates curve_rates_;  // of the device that the curves were measured on
  std::map<CurveKey, CallTime> calls_;
  std::map<OpClass, double> classes_;  // medians of log(seconds / roofline)
};

}  // namespace kiln
