// A step's loss and sum of squares with the same bits on any number of ranks. Gradients may be sharded over
// the ranks, and sums of floats depend on where the cuts are. So each parameter is cut into a fixed number of
// pieces, of which every rank has some whole; a piece's sum of squares depends on its numbers alone. A table
// of all pieces, each rank's filled in and the others' zero, is summed over the ranks, which rounds nothing,
// and then summed from its beginning to its end. The cost is a collective of 16 doubles a parameter, and
// that the host waits for it.
//
// The loss is a sum of a few floats in fp64, which is exact in any order unless one of them is 2^25 times
// another.
#pragma once

#include "dist/strategy/strategy.h"

namespace kiln {

class CanonicalScalars {
 public:
  static constexpr int kPieces = 16;  // the most ranks there may be

  // Throws where the parameters are not laid out for it (ParamLayout::pieces).
  CanonicalScalars(RankContext& ctx, const ParamStore& params, Strategy& strategy);

  void sum(const Tensor& scalars);  // this rank's become those of the run

 private:
  void fill(const Tensor& scalars);

  RankContext& ctx_;
  const ParamStore& params_;
  Strategy& strategy_;
  Tensor table_;  // fp64 [parameters, kPieces]
};

}  // namespace kiln
