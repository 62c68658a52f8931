// What one transformer block keeps for backward, in the middle of a stack where its norms share saves with
// those of its neighbours; what backward gives back and what gradients take; and what a stack of blocks keeps
// under each kind of recomputation.
#pragma once

#include <optional>
#include <vector>

#include "autograd/precision.h"
#include "autograd/rank_context.h"
#include "model/config.h"
#include "perf/memory/residual_ledger.h"

namespace kiln {

struct BlockRequest {
  ModelConfig model;  // `layers` is the stack of kept()
  Precision precision = Precision::fp32;
  int64_t batch = 4, context = 512;
  RankOptions rank;     // its device is where the block runs; its variants are the implementation
  bool measure = true;  // false: on meta alone
};

// A block seen from the allocator: bytes as it counts them, whole multiples of 512.
struct BlockMemory {
  std::size_t kept = 0;   // more activations after forward for one more block
  std::size_t freed = 0;  // fewer activations after its backward than before it
};

struct KeptByStack {
  Recompute recompute;
  std::size_t bytes = 0;  // activations after forward, less those of a stack of no blocks
};

struct BlockResiduals {
  ResidualLedger ledger;                // of the block in the middle of three
  BlockMemory predicted;                // by meta
  std::optional<BlockMemory> measured;  // on the device
  std::size_t stream = 0;               // batch x context x d_model: what passes between blocks
  std::size_t gradients = 0;            // of the block's parameters, in the arena
  std::size_t gradients_expected = 0;   // counted from the shape of a block
  std::vector<KeptByStack> stack;       // by all layers of the request
  double flops = 0;                     // of a forward pass of three blocks, as their ops state it
};

BlockResiduals block_residuals(const BlockRequest& request);

// Bytes that one more block leaves for backward, by meta; of a plan, one that names no number of blocks.
std::size_t block_kept(const BlockRequest& request, const Recompute& recompute);

// Parameters of one block: 2 norms, q, k, v and o, and the three of the MLP.
int64_t block_params(const ModelConfig& config);

}  // namespace kiln
