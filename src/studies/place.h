// Where a bench ran: the device's name, and the ceilings its rows are compared with.
#pragma once

#include <algorithm>

#include "autograd/precision.h"
#include "studies/ceilings.h"

namespace kiln {

struct MeasuredPlace {
  std::string name, isa;
  int threads = 1;
  Ceilings ceilings;
};

std::string device_name(const Device& device);

// Without ceilings, which take seconds.
MeasuredPlace find_place(const Device& device, int threads);

// In its own context: what the rows left in theirs is not in its way.
MeasuredPlace measure_place(const Device& device, int threads, const std::vector<DType>& dtypes);

// The same for steps in the formats they compute in, noted in their report.
template <class Report, class Steps>
MeasuredPlace note_place(Report& report, const Device& device, int threads, const Steps& steps) {
  std::vector<DType> dtypes;
  for (const auto& step : steps) {
    const DType dtype = policy_of(step.spec.precision).compute;
    if (std::find(dtypes.begin(), dtypes.end(), dtype) == dtypes.end()) dtypes.push_back(dtype);
  }
  MeasuredPlace place = measure_place(device, threads, dtypes);
  report.device = device.str();
  report.device_name = place.name;
  report.isa = place.isa;
  report.threads = place.threads;
  report.copy = place.ceilings.copy;
  for (const DType t : dtypes) {
    const NamedRate& rate = place.ceilings.flops.at(t);
    report.flops.push_back({cat(name_of(t), " ", rate.name), rate.per_second});
  }
  return place;
}

}  // namespace kiln
