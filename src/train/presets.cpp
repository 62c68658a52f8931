#include "train/presets.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/options.h"
#include "ops/op_list.h"

namespace kiln {
namespace {

constexpr std::string_view kBaseline = "baseline";
constexpr std::string_view kPresets[] = {"optimized", kBaseline};

bool has_row(const OpListing& op, DeviceType device, std::string_view name) {
  return std::any_of(op.variants.begin(), op.variants.end(),
                     [&](const VariantListing& v) { return v.device == device && v.name == name; });
}

// Scalar loops would take 512 tokens through `small` in minutes a step.
bool is_product(std::string_view op) { return is_gemm(kind_of_op(op)); }

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

// The model's own choices in the form of ops, so that they are requested, refused and suggested alike.
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

std::vector<std::string_view> preset_names() { return {std::begin(kPresets), std::end(kPresets)}; }

RunVariants choose_variants(std::string_view preset, std::string_view variants, DeviceType device) {
  std::vector<OpListing> all = list_ops();
  RunVariants r;
  if (kPresets[which_name("--preset", preset, kPresets)] == kBaseline) r = baseline(all, device);
  all.push_back(projection("qkv", "q, k and v in one matmul or three"));
  all.push_back(projection("gate_up", "gate and up in one matmul or two"));
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
