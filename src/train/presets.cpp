#include "train/presets.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/nearest_name.h"
#include "ops/op_list.h"

namespace kiln {
namespace {

bool has_row(const OpListing& op, DeviceType device, std::string_view name) {
  return std::any_of(op.variants.begin(), op.variants.end(),
                     [&](const VariantListing& v) { return v.device == device && v.name == name; });
}

// Scalar loops would take 512 tokens through `small` in minutes a step.
bool is_product(std::string_view op) { return op == "linear" || op == "batched_matmul"; }

RunVariants baseline(const std::vector<OpListing>& ops, DeviceType device) {
  RunVariants r;
  r.fused_qkv = r.fused_gate_up = false;
  for (const OpListing& op : ops) {
    if (is_product(op.name)) continue;
    for (const char* name : {"composed", "naive"}) {
      if (!has_row(op, device, name)) continue;
      r.ops.set(op.name, name);
      break;
    }
  }
  return r;
}

// The model's own choices in the form of ops, so that they are asked for, refused and suggested alike.
OpListing projection(std::string_view name, std::string_view summary) {
  OpListing l{name, summary, {}};
  for (const char* variant : {"fused", "split"}) l.variants.push_back({variant, DeviceType::cpu, true, {}});
  return l;
}

}  // namespace

void RunVariants::apply_to(ModelConfig& config) const {
  config.fused_qkv = fused_qkv;
  config.fused_gate_up = fused_gate_up;
}

RunVariants choose_variants(std::string_view preset, std::string_view variants, DeviceType device) {
  constexpr std::array<std::string_view, 2> kPresets = {"baseline", "optimized"};
  std::vector<OpListing> all = list_ops();
  RunVariants r;
  if (preset == "baseline") {
    r = baseline(all, device);
  } else if (preset != "optimized") {
    const std::string near = nearest_name(preset, kPresets);
    throw Error(cat("--preset is '", preset, "'; expected one of: baseline, optimized"),
                near.empty() ? "" : cat("did you mean '", near, "'?"), ErrorKind::usage);
  }
  all.push_back(projection("qkv", "q, k and v by one product or by three"));
  all.push_back(projection("gate_up", "gate and up by one product or by two"));
  const VariantChoice asked = parse_variants(variants, all);
  for (const auto& [name, variant] : asked.all()) {
    if (name == "qkv") {
      r.fused_qkv = variant == "fused";
    } else if (name == "gate_up") {
      r.fused_gate_up = variant == "fused";
    } else {
      r.ops.set(name, variant);
    }
  }
  return r;
}

}  // namespace kiln
