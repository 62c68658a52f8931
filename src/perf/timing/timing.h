// How kiln times: the one loop under every bench. Warm-ups first, then samples until there are enough of them
// and enough time has passed; the steady clock, with a device synchronization on both sides. Medians and
// percentiles are reported, never a bare mean: a shared machine has long tails.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/stop.h"

namespace kiln {

struct TimingOptions {
  int warmups = 2;
  int min_samples = 10;
  int max_samples = 2000;
  double min_seconds = 0.25;  // of samples, besides min_samples
  // All there is, preparation included: slow work gets fewer samples, the very slow one, its first call.
  double max_seconds = 3;
  StopAsked stop = nullptr;  // asked between calls; true: throws Stopped
};

struct Timing {
  int warmups = 0;
  double first = 0;             // seconds of the first call, cold: what a one-off use would pay
  std::vector<double> samples;  // seconds, in the order taken
  double min = 0, p20 = 0, p50 = 0, p80 = 0, p95 = 0, mean = 0, std = 0;

  // Empty when the samples agree with each other, else what is wrong with them.
  std::string noise() const;
  // Is the mean known to 5 %, with 95 % confidence? Of ten samples that is a standard deviation below 7 % of
  // it, of three below 2 %; thousands may have a tail and still agree on their mean. One sample never is.
  bool stable() const;
};

// What is timed. `prepare` runs before every call, untimed; `wait` returns when the device is idle.
struct TimedWork {
  std::function<void()> call;
  std::function<void()> prepare = {};
  std::function<void()> wait = {};
};

Timing time_work(const TimedWork& work, const TimingOptions& options = {});

// Statistics of given samples; apart from the clock, so that they can be tested.
Timing summarize(std::vector<double> samples);

// For each of several visits to the same work, which together take what these options say.
TimingOptions for_each_visit(TimingOptions options, int visits);

// Of two measurements of the same work, the earlier one first.
Timing merged(const Timing& a, const Timing& b);

// The value below which a share p of the samples lies, interpolated between neighbours; sorted input.
double percentile(const std::vector<double>& sorted, double p);

}  // namespace kiln
