// Whole sets of variants by name, for `--preset`, and single choices on top of them, for `--variant`.
//
//   optimized  every op takes the first row of its table that can run; projections are packed
//   baseline   what a textbook writes: every op composed of others where it has such a row, else its plain
//              loops; q, k and v, and gate and up, as matmuls of their own; one AdamW call per parameter.
//              Matmuls stay `packed`, on a GPU `lt`: nobody's baseline multiplies matrices in scalar
//              loops. Otherwise the rows are the same on both devices.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/variant_choice.h"
#include "device/device.h"
#include "model/config.h"

namespace kiln {

// What a run computes with: the variants of ops, and two choices the model makes by itself.
struct RunVariants {
  VariantChoice ops;
  bool fused_qkv = true;
  bool fused_gate_up = true;

  void apply_to(ModelConfig& config) const;
};

std::vector<std::string_view> preset_names();

// `variants` is "attention=naive,qkv=split": any op of kiln ops, and qkv and gate_up (fused or split). Throws
// Error(usage) for an unknown preset, op or variant, with the nearest name. `device` decides which rows the
// baseline has to choose from.
RunVariants choose_variants(std::string_view preset, std::string_view variants,
                            DeviceType device = DeviceType::cpu);

}  // namespace kiln
