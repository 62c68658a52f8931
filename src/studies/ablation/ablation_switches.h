// The optimizations that `kiln ablate` turns on one by one and all at once, each by the name of its switch,
// and what a step runs with when some of them are on. All off is the baseline preset in the precision of the
// request, without graph, prefetch and recompute; all on is the optimized preset in bf16 with the three.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "studies/step/synthetic_step.h"
#include "train/presets.h"

namespace kiln {

struct AblationSwitch {
  std::string_view name;  // fused_rmsnorm
  std::string_view what;  // in a few words
};

// The one that takes several ranks, and so is compared on them alone.
inline constexpr std::string_view kRankSwitch = "fsdp";
inline constexpr std::string_view kCompileSwitch = "compile";

// In the order in which they are added: ops first, then what changes all of them at once.
std::span<const AblationSwitch> ablation_switches();

// Throws Error(usage) with the nearest name.
const AblationSwitch& find_ablation_switch(std::string_view option, std::string_view name);

// Why a device cannot do it; empty where it can.
std::string why_not_on(const AblationSwitch& s, const Device& device);

// What a step runs with.
struct AblationSetup {
  RunVariants variants;
  StepSpec spec;                 // of a whole step
  bool loader_prefetch = false;  // the host's half of prefetching

  std::string differences()
      const;  // "dtype=bf16,graph=on,...": all that is decided besides the ops' variants
};

// `shape` has the model and the sizes of the step; everything a switch decides is set here.
AblationSetup ablation_setup(const StepSpec& shape, const std::vector<std::string_view>& on,
                             const Device& device);

}  // namespace kiln
