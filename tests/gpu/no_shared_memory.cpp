// In place of shared_memory.cu in a build without CUDA.
#include "base/error.h"
#include "gpu/shared_memory.h"

namespace kiln {

void poison_shared_memory(RankContext& /*ctx*/) {
  throw Error("no GPU's shared memory in a build without CUDA");
}

}  // namespace kiln
