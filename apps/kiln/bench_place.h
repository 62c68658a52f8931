// Where a bench ran: the device's name, and the ceilings its rows are put beside.
#pragma once

#include "kiln/bench_ceilings.h"

namespace kiln::cli {

struct MeasuredPlace {
  std::string name, isa;
  int threads = 1;
  Ceilings ceilings;
};

std::string device_name(const Device& device);

// In a context of its own: what the rows left in theirs is not in its way.
MeasuredPlace measure_place(const Device& device, int threads, const std::vector<DType>& dtypes);

}  // namespace kiln::cli
