// dst[i] = sum over ranks of src[rank][i], in rank order, in the accumulation type: the one kernel of the
// `threads` transport.
#pragma once

#include "autograd/rank_context.h"

namespace kiln {

inline constexpr int kMaxThreadRanks = 16;

struct RankSources {
  const std::byte* data[kMaxThreadRanks] = {};
  int world = 0;
};

void reduce_ranks(RankContext& ctx, std::byte* dst, const RankSources& src, int64_t count, DType dtype);
// On the rank's communication stream.
void reduce_ranks_cuda(RankContext& ctx, std::byte* dst, const RankSources& src, int64_t count, DType dtype);

}  // namespace kiln
