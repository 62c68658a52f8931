// The loss from a hidden state that all ranks have and a head of which each has some rows: what
// ops/linear_cross_entropy is for one rank. For a few rows at a time each rank makes its columns of the
// logits; of a row the ranks exchange two numbers (dist/tensor/vocab_rows.h), from which everybody has the
// log of the sum over the whole vocabulary and the loss; then each turns its columns into their gradient, and
// that into its part of dx, to be summed, and the whole of its dW. No rank has a row of logits whole.
#pragma once

#include "autograd/param.h"
#include "dist/comm/communicator.h"
#include "dist/tensor/vocab_rows.h"

namespace kiln {

// x [..., in], weight [rows that are here, in], int32 targets [...] of the whole vocabulary: the loss, [1] in
// fp32, the same bits on all ranks. `one`: [1], fp32. The gradient of x is this rank's summand. It is a node
// of linear_cross_entropy's on the tape, which saves dx, dweight and count.
Tensor vocab_parallel_loss(RankContext& ctx, Communicator& comm, const Tensor& x, const ParamRef& weight,
                           const Tensor& targets, const VocabPart& here, const Tensor& one,
                           int64_t chunk_rows = 0);

}  // namespace kiln
