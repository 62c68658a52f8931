// Random functions of tensors for the compiler's tests: a seed gives the ops, the shapes, the strides and the
// values, so that a failure is found again by its number.
#pragma once

#include <random>

#include "autograd/region.h"

namespace kiln {

struct RandomOp {
  int kind = 0, a = 0, b = 0;  // which op; which values before it, counted from the end
  double number = 0;
};

struct RandomRegion {
  int64_t rows = 1, columns = 1;
  std::vector<int64_t> padding;  // of each tensor's rows: they are column ranges of wider ones
  bool weight = false;
  std::vector<RandomOp> ops;
  int outputs = 1;

  explicit RandomRegion(uint64_t seed);
  Tensors run(RankContext& ctx, const RegionInputs& in) const;
  Region region(std::string key) const;
};

// What one pass of it gives: outputs, gradients of the tensors, gradient of the weight; as fp64.
struct RegionResult {
  std::vector<std::vector<double>> values;
  std::vector<std::string> names;
};

// Same numbers for every dtype, rounded to it.
RegionResult run_random(RankContext& ctx, const RandomRegion& r, DType dtype, uint64_t seed, bool compile);

}  // namespace kiln
