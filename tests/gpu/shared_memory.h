// A GPU's shared memory as the worst that an earlier kernel could have left in it.
#pragma once

namespace kiln {

class RankContext;

// Fills all of it, on every multiprocessor of the rank's GPU, with 0xff bytes: NaN in every float format.
// Throws in a build without CUDA.
void poison_shared_memory(RankContext& ctx);

}  // namespace kiln
