// A contiguous tensor of any floating dtype to fp32 on the host and back; set-up, files and results, never
// inside a step.
#pragma once

#include <span>

#include "autograd/rank_context.h"

namespace kiln {

void download_floats(RankContext& ctx, const Tensor& from, std::span<float> out);
void upload_floats(RankContext& ctx, const Tensor& to,
                   std::span<const float> in);  // rounds to the tensor's dtype

}  // namespace kiln
