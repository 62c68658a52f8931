#include "optim/schedule.h"

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace kiln {

double LrSchedule::at(int64_t step) const {
  if (step <= warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  if (decay_end <= warmup) return peak;
  if (step >= decay_end) return floor;
  const double way = static_cast<double>(step - warmup) / static_cast<double>(decay_end - warmup);
  return floor + (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * way));
}

void check_schedule(const LrSchedule& s) {
  auto refuse = [](const char* name, double value, const char* expected) {
    throw Error(cat(name, " is ", value, "; expected ", expected), {}, ErrorKind::usage);
  };
  if (!(s.peak > 0) || !std::isfinite(s.peak)) refuse("the learning rate", s.peak, "a number above 0");
  if (!(s.floor >= 0 && s.floor <= s.peak))
    refuse("the lowest learning rate", s.floor, "a number from 0 to the learning rate");
  if (s.warmup < 0) refuse("the number of warm-up steps", static_cast<double>(s.warmup), "0 or more");
}

}  // namespace kiln
