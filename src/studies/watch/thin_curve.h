// A curve of any number of steps in a few hundred bins: each knows the mean, least and most of its steps.
// When they are full, neighbours merge and every bin covers twice as many steps.
#pragma once

#include <cstdint>
#include <vector>

namespace kiln {

struct CurveBin {
  int64_t first = 0, last = 0;  // steps
  int64_t count = 0;
  double sum = 0, least = 0, most = 0;
  double mean() const { return sum / static_cast<double>(count); }
};

class ThinCurve {
 public:
  ThinCurve() = default;
  explicit ThinCurve(std::size_t most_bins) : most_bins_(most_bins) {}

  void add(int64_t step, double value);  // in the order of steps; what is not finite is left out
  const std::vector<CurveBin>& bins() const { return bins_; }
  bool empty() const { return bins_.empty(); }
  std::vector<double> means() const;

 private:
  void halve();
  std::size_t most_bins_ = 512;
  int64_t width_ = 1;  // steps of a full bin
  std::vector<CurveBin> bins_;
};

}  // namespace kiln
