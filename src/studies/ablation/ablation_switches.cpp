#include "studies/ablation/ablation_switches.h"

#include <algorithm>
#include <array>

#include "autograd/region.h"
#include "base/error.h"
#include "base/nearest_name.h"

namespace kiln {
namespace {

struct SwitchOps {
  std::string_view name;
  std::array<std::string_view, 2> ops;
};

// An op that no switch names is one of `other_ops`.
constexpr std::array kOps = {
    SwitchOps{"fused_rmsnorm", {"rms_norm", "add_rms_norm"}},
    SwitchOps{"fused_rope", {"rope", ""}},
    SwitchOps{"fused_swiglu", {"swiglu", ""}},
    SwitchOps{"flash_attention", {"attention", ""}},
    SwitchOps{"fused_linear_ce", {"linear_cross_entropy", ""}},
    SwitchOps{"fused_adamw", {"adamw", ""}},
};

constexpr std::array kSwitches = {
    AblationSwitch{"fused_rmsnorm", "norm and residual sum in one pass"},
    AblationSwitch{"fused_rope", "rotary embedding of q and k in one pass"},
    AblationSwitch{"fused_swiglu", "one pass over gate and up, which are one matmul"},
    AblationSwitch{"flash_attention", "no T x T scores in memory; q, k and v are one matmul"},
    AblationSwitch{"fused_linear_ce", "head and loss without the whole logits"},
    AblationSwitch{"fused_adamw", "one call for all parameters"},
    AblationSwitch{"other_ops", "the rest: embedding, casts, gradient norm, small ops"},
    AblationSwitch{"prefetch", "batches prepared and copied during the step before"},
    AblationSwitch{"bf16", "bf16 weights over exact fp32 ones, matmuls in bf16"},
    AblationSwitch{"cuda_graph", "the step captured once and replayed"},
    AblationSwitch{"recompute", "each block's activations recomputed in backward"},
    AblationSwitch{"compile", "the ops between matmuls fused into generated kernels"},
    AblationSwitch{
        kRankSwitch,
        "weights, gradients and state shared out among 2 ranks of one device; against ddp:naive on them"},
};

bool is_named(std::string_view op) {
  return std::any_of(kOps.begin(), kOps.end(), [&](const SwitchOps& s) {
    return std::find(s.ops.begin(), s.ops.end(), op) != s.ops.end();
  });
}

}  // namespace

std::span<const AblationSwitch> ablation_switches() { return kSwitches; }

const AblationSwitch& find_ablation_switch(std::string_view option, std::string_view name) {
  std::vector<std::string_view> names;
  for (const AblationSwitch& s : kSwitches) {
    if (s.name == name) return s;
    names.push_back(s.name);
  }
  std::string all;
  for (const std::string_view n : names) all += cat(all.empty() ? "" : ", ", n);
  const std::string near = nearest_name(name, names);
  throw Error(cat(option, " has '", name, "', which is no switch"),
              near.empty() ? cat("the switches are ", all) : cat("did you mean '", near, "'?"),
              ErrorKind::usage);
}

std::string why_not_on(const AblationSwitch& s, const Device& device) {
  if (s.name == "cuda_graph" && device.target != DeviceType::cuda)
    return cat(device.str(), " cannot capture a step; use --device cuda");
  if (s.name == "compile") return why_not_compiled(device);
  return {};
}

std::string AblationSetup::differences() const {
  const auto shape = [](bool fused) { return fused ? "fused" : "split"; };
  return cat("dtype=", name_of(spec.precision), ",graph=", spec.step.graph ? "on" : "off",
             ",prefetch=", loader_prefetch ? "on" : "off", ",recompute=", name_of(spec.model.recompute),
             ",qkv=", shape(spec.model.fused_qkv), ",gate_up=", shape(spec.model.fused_gate_up),
             spec.model.compile == CompileMode::none ? "" : cat(",compile=", name_of(spec.model.compile)));
}

AblationSetup ablation_setup(const StepSpec& shape, const std::vector<std::string_view>& on,
                             const Device& device) {
  const auto is_on = [&](std::string_view name) { return std::find(on.begin(), on.end(), name) != on.end(); };
  AblationSetup setup;
  setup.variants = choose_variants("baseline", "", device.target);
  const VariantChoice baseline = setup.variants.ops;
  for (const SwitchOps& s : kOps) {
    if (!is_on(s.name)) continue;
    for (const std::string_view op : s.ops) {
      if (!op.empty()) setup.variants.ops.set(op, "");  // the op's own order decides, as in `optimized`
    }
  }
  if (is_on("other_ops")) {
    for (const auto& [op, variant] : baseline.all()) {
      if (!is_named(op)) setup.variants.ops.set(op, "");
    }
  }
  setup.variants.fused_gate_up = is_on("fused_swiglu");
  setup.variants.fused_qkv = is_on("flash_attention");
  setup.spec = shape;
  setup.variants.apply_to(setup.spec.model);
  setup.spec.mode = StepMode::full;
  setup.spec.precision = is_on("bf16") ? Precision::bf16 : shape.precision;
  setup.spec.model.recompute = is_on("recompute") ? Recompute::block : Recompute::none;
  setup.spec.model.compile = is_on("compile") ? CompileMode::model : CompileMode::none;
  setup.spec.step.graph = is_on("cuda_graph");
  setup.loader_prefetch = is_on("prefetch");
  if (!setup.loader_prefetch) setup.spec.step.prefetch = false;  // else: where the device has streams
  return setup;
}

}  // namespace kiln
