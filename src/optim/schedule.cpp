#include "optim/schedule.h"

#include <cmath>
#include <numbers>

#include "base/choice.h"
#include "base/error.h"

namespace kiln {
namespace {

struct Row {
  std::string_view name;
  double (*height)(double way);  // above the floor, of the peak's, when so much of the way down is done
};

const Row kRows[] = {
    {"cosine", [](double way) { return 0.5 * (1 + std::cos(std::numbers::pi * way)); }},
    {"linear", [](double way) { return 1 - way; }},
    {"constant", [](double) { return 1.0; }},
};

const Row& find(std::string_view name) { return kRows[index_of("--schedule", name, schedule_names())]; }

}  // namespace

std::vector<std::string_view> schedule_names() {
  std::vector<std::string_view> names;
  for (const Row& r : kRows) names.push_back(r.name);
  return names;
}

double LrSchedule::at(int64_t step) const {
  if (step <= warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  if (decay_end <= warmup) return peak;
  const double way = static_cast<double>(step - warmup) / static_cast<double>(decay_end - warmup);
  return floor + (peak - floor) * find(shape).height(way < 1 ? way : 1);
}

void check_schedule(const LrSchedule& s) {
  auto refuse = [](const char* name, double value, const char* expected) {
    throw Error(cat(name, " is ", value, "; expected ", expected), {}, ErrorKind::usage);
  };
  if (!(s.peak > 0) || !std::isfinite(s.peak)) refuse("the learning rate", s.peak, "a number above 0");
  if (!(s.floor >= 0 && s.floor <= s.peak))
    refuse("the lowest learning rate", s.floor, "a number from 0 to the learning rate");
  if (s.warmup < 0) refuse("the number of warm-up steps", static_cast<double>(s.warmup), "0 or more");
  (void)find(s.shape);
}

}  // namespace kiln
