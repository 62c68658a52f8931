// Initial values of weights. Implemented by ops/draw_weights, so that each device draws its own, same bits.
#pragma once

#include <string_view>

#include "autograd/param.h"

namespace kiln {

// Writes flat[i] = init(seed, name, first + i). With `low`, the fp32 value is stored split.
void draw_weights(RankContext& ctx, const Tensor& flat, const Tensor& low, const ParamInit& init,
                  std::string_view name, int64_t first);

}  // namespace kiln
