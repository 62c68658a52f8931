// dst[i] = sum over ranks of src[rank][i], in the accumulation type, written to one or several places: the
// one kernel of the `threads` transport. dst may be one of src. Ranks are added pairwise, ((0 + 1) + (2 + 3))
// + (4 + 5), a fixed order whose upper levels do not change with what the lower ones were summed on
// (dist/strategy/grad_tree.h).
#pragma once

#include "base/dtype.h"
#include "device/backend.h"

namespace kiln {

inline constexpr int kMaxThreadRanks = 16;

struct RankMemory {
  std::byte* data[kMaxThreadRanks] = {};
  int count = 0;
};

// On the CPU by the calling thread alone: the communicator's, not the rank's own threads.
void reduce_ranks(Backend& backend, Stream stream, const RankMemory& dst, const RankMemory& src,
                  int64_t count, DType dtype);
void reduce_ranks_cuda(Backend& backend, Stream stream, const RankMemory& dst, const RankMemory& src,
                       int64_t count, DType dtype);

}  // namespace kiln
