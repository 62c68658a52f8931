// What bounds a timed row: ceilings measured in the same process, before and after the rows.
#pragma once

#include <map>

#include "perf/timing/ceilings.h"
#include "studies/op/op.h"

namespace kiln {

struct Ceilings {
  double copy = 0;  // bytes/s, read and written
  std::map<DType, NamedRate> flops;
};

class CeilingWatch {
 public:
  CeilingWatch(RankContext& ctx, const std::vector<DType>& dtypes);  // measures
  // Measures again and gives the better of the two: what else the machine did meanwhile must not flatter us.
  Ceilings finish();

 private:
  bool on_cpu() const { return ctx_.device().type == DeviceType::cpu; }
  CpuCeilings measure(double seconds);

  RankContext& ctx_;
  std::vector<DType> dtypes_;
  CpuCeilings cpu_;
};

// Of the last cache before memory; 0 where it is not known.
double cache_bytes(const Device& device);

// Which ceiling is the nearer one for this row, and how close it came.
void set_bound(BenchRow& row, const Ceilings& ceilings, const Device& device);

}  // namespace kiln
