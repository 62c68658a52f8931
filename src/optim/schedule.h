// The learning rate of each step: up in a straight line, then down by one of the shapes in the table, then
// level.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

struct LrSchedule {
  double peak = 3e-4;
  double floor = 3e-5;  // where the way down ends, and stays
  int64_t warmup = 0;   // steps of the way up; step `warmup` has the peak
  int64_t decay_end =
      0;  // the step that reaches the minimum; at or before `warmup`: the peak is kept to the end
  std::string shape = "cosine";

  double at(int64_t step) const;  // steps count from 1
};

// cosine, linear, constant: the last stays at the peak.
std::vector<std::string_view> schedule_names();

// Throws Error(usage), naming the number that cannot be, or the names where there is no such shape.
void check_schedule(const LrSchedule& s);

}  // namespace kiln
