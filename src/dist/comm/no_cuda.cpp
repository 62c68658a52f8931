#include "base/error.h"
#include "dist/comm/reduce_ranks.h"

namespace kiln {

void reduce_ranks_cuda(RankContext&, std::byte*, const RankSources&, int64_t, DType) {
  throw Error("this kiln was built without CUDA", "run `make cuda`", ErrorKind::unavailable);
}

}  // namespace kiln
