// The learning rate of each step: up in a straight line, down along half a cosine, then level.
#pragma once

#include <cstdint>

namespace kiln {

struct LrSchedule {
  double peak = 3e-4;
  double floor = 3e-5;    // where the cosine ends, and stays
  int64_t warmup = 0;     // steps of the way up; step `warmup` has the peak
  int64_t decay_end = 0;  // the step that reaches the floor; at or before `warmup`: the peak is kept for ever

  double at(int64_t step) const;  // steps count from 1
};

// Throws Error(usage), naming the number that cannot be.
void check_schedule(const LrSchedule& s);

}  // namespace kiln
