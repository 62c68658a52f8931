// Sums over the micro-steps of a step whose order does not depend on how many ranks there are. The chunks of
// a step's batch are the leaves of a binary tree; each rank has a subtree of 2^k of them, the sum over ranks
// (pairwise too: dist/comm/reduce_ranks.h) is the rest of it. Between two chunks one partial sum is kept for
// each level below: log2(chunks) more buffers of gradients.
//
//   chunk    0     1       2     3         4 ...
//            c0 -> c0+c1   c2 -> c2+c3 -> (c0+c1)+(c2+c3)
//            kept  kept'   kept           kept''
#pragma once

#include <vector>

#include "autograd/rank_context.h"

namespace kiln {

class GradTree {
 public:
  // `grads`: the flat buffer that each chunk's gradients are written to; `chunks` of this rank.
  GradTree(RankContext& ctx, const Tensor& grads, int chunks);

  // `range` of the buffer holds the gradients of that chunk, which come in order, the last included. After
  // the last it holds their sum.
  void fold(const Tensor& range, int chunk);

 private:
  RankContext& ctx_;
  Tensor grads_;
  int chunks_;
  std::vector<Tensor> levels_;
};

// Throws Error(usage), in words, where the bits could not be those of another number of ranks.
void check_chunks(int chunks, int ranks);

}  // namespace kiln
