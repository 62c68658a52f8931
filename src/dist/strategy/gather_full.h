// A sharded model gathered whole on every rank: for sampling, external evaluation, and results. Each weight
// is gathered by itself, so no more than one weight is held twice.
#pragma once

#include "autograd/param_store.h"
#include "dist/comm/communicator.h"

namespace kiln {

// One parameter from every rank's flat piece of it (a value, a gradient, a moment): in the parameter's shape.
// Of a parameter every rank has whole, a view of the piece.
Tensor gather_whole(RankContext& ctx, Communicator& comm, const Param& p, const Tensor& piece);

// Fills `full`, a materialized and unsharded store of the same model and precision, from the shards of all
// ranks: the same values, bit for bit, low halves too where `full` has them. Collective.
void gather_full(RankContext& ctx, Communicator& comm, ParamStore& sharded, ParamStore& full);

}  // namespace kiln
