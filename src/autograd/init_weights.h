// Initial values of weights. Implemented by ops/init_weights, so that each device draws its own, same bits.
#pragma once

#include <string_view>

#include "autograd/param.h"
#include "base/hd.h"

namespace kiln {

// A rectangle of a weight, row by row: where in the weight its elements stand.
struct WeightSlice {
  int64_t columns = 1, whole_columns = 1;
  int64_t begin = 0;  // the rectangle's first element
  KILN_HD int64_t at(int64_t i) const {
    return columns == whole_columns ? begin + i : begin + i / columns * whole_columns + i % columns;
  }
};

// Writes flat[i] = init(seed, name, slice.at(first + i)): ranks that hold parts of a weight draw the values
// of one that holds it whole. With `low`, the fp32 value is stored split.
void init_weights(RankContext& ctx, const Tensor& flat, const Tensor& low, const ParamInit& init,
                  std::string_view name, int64_t first, const WeightSlice& slice = {});

}  // namespace kiln
