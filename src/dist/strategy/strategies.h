// The strategies by name, in one table.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dist/comm/communicator.h"
#include "dist/strategy/strategy.h"

namespace kiln {

struct StrategyOptions {
  double bucket_mb = 25;    // of 1e6 bytes: the cap of a bucket of gradients
  DType wire = DType::f32;  // of gradients between ranks, or bf16
  int prefetch = 1;         // fsdp: weights in flight while one is in use
  int chunks = 0;           // above 0: micro-steps of a step, summed as grad_tree.h says
};

// none, ddp:naive, ddp:flat, ddp:overlap, ddp:bucketed, zero1:simple, zero1, zero2, fsdp.
std::vector<std::string_view> strategy_names();

// Throws Error(usage) that lists the names, or says that `none` has no use for several ranks.
void check_strategy(std::string_view name, int ranks);
DType parse_wire(std::string_view option, std::string_view text);  // fp32 or bf16

// For the rank of `ctx`. `comm` must outlive it.
std::unique_ptr<Strategy> make_strategy(std::string_view name, const StrategyOptions& options,
                                        RankContext& ctx, Communicator& comm);

}  // namespace kiln
