#include "base/error.h"
#include "dist/comm/event_passed.h"
#include "dist/comm/reduce_ranks.h"

namespace kiln {

void reduce_ranks_cuda(Backend&, Stream, const RankMemory&, const RankMemory&, int64_t, DType) {
  throw Error("this kiln was built without CUDA", "run `make cuda`", ErrorKind::unavailable);
}

bool event_passed(Backend&, Event) { return true; }

}  // namespace kiln
