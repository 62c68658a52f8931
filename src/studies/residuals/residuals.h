// The work of `kiln residuals --op`: what each variant of an op keeps for backward, what its backward reads,
// and what gradients it leaves, from the schedule (meta) and, where that takes seconds at most, from the
// device.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ops/cases/bench_case.h"
#include "perf/memory/block_residuals.h"

namespace kiln {

struct ResidualsOpRequest {
  OpBench bench{.op = {}, .aliases = {}, .shapes = {}, .check_at_most = {}, .make = {}};
  BenchShape shape{};
  DType dtype = DType::f32;
  std::vector<std::string> variants;  // empty: every one the device has
  Device device;
  int threads = 0;
  uint64_t seed = 0;
};

// One variant. Bytes of `kept`, `gradients` and `net_change` are as the allocator counts them.
struct OpResiduals {
  std::string variant;
  std::string reason;  // why it is not here; all else is empty then
  ResidualLedger ledger;
  struct Memory {
    std::size_t kept = 0;    // for backward, inputs left out: they were there before
    int64_t net_change = 0;  // from before backward to after it
    std::size_t peak = 0;    // at once, over both passes, beyond what was there before
  };
  Memory predicted;
  std::optional<Memory> measured;
  std::size_t gradients = 0;  // of inputs and weights
  Cost backward;              // as the op states it: the least that backward must read and write
};

struct ResidualsOpReport {
  ResidualsOpRequest request;
  std::vector<OpResiduals> variants;
  std::size_t largest_input = 0;
  // The inputs, from which everything can be computed again, or what the most frugal variant keeps, if that
  // is less.
  std::size_t floor = 0;
};

ResidualsOpReport op_residuals(const ResidualsOpRequest& request);

// "4,512,2560" or "rows=2048,cols=2560": numbers alone are the op's sizes in order; where there are more
// of them than sizes, the leading ones are multiplied. Throws Error(usage).
BenchShape parse_residual_shape(const OpBench& bench, std::string_view text);

// One block, one column for each implementation.
struct ResidualsBlockRequest {
  ResidualsBlockRequest() { block.context = 2048; }

  std::string size;
  BlockRequest block;
  std::vector<std::string> presets = {"baseline", "optimized"};
  std::string variants;  // on top of each preset
};

struct ResidualsBlockReport {
  ResidualsBlockRequest request;
  std::vector<BlockResiduals> blocks;  // as request.presets
};

ResidualsBlockReport block_report(const ResidualsBlockRequest& request);

}  // namespace kiln
