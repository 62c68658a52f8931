// Attention's backward by plain multiply-adds. Scores are made again from q, k and lse:
//
//   P = exp(scale q k^T - lse)   dP = dO v^T   dS = P (dP - delta)   delta = rowsum(dO o)
//   dq = scale dS k: a block has queries and walks over keys; it also writes delta, for the other kernel
//   dk = scale dS^T q, dv = P^T dO: a block has keys and walks over the queries of its group of heads
//
// One writer per gradient, so no atomics and always the same bits, at the price of seven matmuls for five.
// Of the side that is walked over, the tile needed first and last (k, or q) has two places in shared memory;
// the other's next one comes while the last matmul runs. A LadderStep is as in forward.cuh.
// Roofline: q, k, v, o, dO once in, dq, dk, dv once out; 10 D operations per seen pair and head.
#pragma once

#include "ops/attention/tiled/backward_key.cuh"
#include "ops/attention/tiled/backward_query.cuh"

namespace kiln::tiled {

template <LadderStep Step, class T, NamedTileShape Tiles>
void run_backward(RankContext& ctx, const AttentionBackward& b) {
  run_grad_query<Step, T, Tiles>(ctx, b);
  if (b.dk.wanted() || b.dv.wanted()) run_grad_key<Step, T, Tiles>(ctx, b);
}

}  // namespace kiln::tiled
