// The ways to share a model among devices that `kiln plan` compares: data parallelism in its forms, each
// alone or over groups of tensor-parallel devices, and a pipeline, which kiln does not run, on paper.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace kiln {

struct Layout {
  std::string strategy = "none";  // none, ddp, zero1, zero2, fsdp: among the data-parallel devices
  int data = 1, tensor = 1, stages = 1;

  int devices() const { return data * tensor * stages; }
  bool runs() const { return stages == 1; }  // with kiln
  std::string name() const;                  // "fsdp 8 x tp 4", "ddp 64", "pp 4 x ddp 16", "one device"
  std::string_view strategy_name() const;    // as --strategy of train has it
  std::string_view zero_stage() const;       // as perf/comm/zero_theory.h has it: 0, 1, 2, 3
};

struct LayoutRequest {
  ModelConfig model = {};
  bool ffn_only = false;  // no heads and no vocabulary to divide
  int devices = 1;
  int node = 8;
  int64_t batch = 1;                          // sequences of a micro-step, all devices
  int micro_steps = 1;                        // of a step: what a pipeline can overlap
  std::vector<std::string> strategies = {};   // none: all
  std::vector<int> tensor = {}, stages = {};  // none: as many as make sense
};

struct SkippedLayout {
  std::string name, reason;
};

struct Layouts {
  std::vector<Layout> all;
  std::vector<SkippedLayout> skipped;
};

const std::vector<std::string_view>& plan_strategies();  // ddp, zero1, zero2, fsdp, tp, pp

// Error(usage) where what was requested by name cannot be, and where nothing is left.
Layouts layouts_for(const LayoutRequest& request);

}  // namespace kiln
