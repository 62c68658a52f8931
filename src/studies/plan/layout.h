// The ways to share a model among devices that `kiln plan` compares: data parallelism in its forms, each
// alone or over groups of tensor-parallel devices, and a pipeline, which kiln does not run, on paper.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "train/layout.h"

namespace kiln {

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
