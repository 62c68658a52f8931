// Every op there is, for listings and for checking what a user asks for by name.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/variant_choice.h"
#include "device/device.h"
#include "ops/kernels.h"
#include "ops/variant.h"

namespace kiln {

struct VariantListing {
  std::string name;
  DeviceType device;
  bool available;
  std::string reason;  // why not, empty when available
  Kernels kernels = {};
};

struct OpListing {
  std::string_view name;
  std::string_view summary;
  std::vector<VariantListing> variants;
};

// Of an op by its name; elementwise where there is none of that name.
OpKind kind_of_op(std::string_view name);

// What can run on this machine with this build, each variant on its own kind of device.
std::vector<OpListing> list_ops();
// What can run on one device: the same answers that select() gives there.
std::vector<OpListing> list_ops(const Device& device);

// Throws Error(usage) for an unknown name, with the nearest one.
const OpListing& find_op(std::span<const OpListing> ops, std::string_view asked);

// "attention=naive,rms_norm=naive"; throws Error(usage) for an unknown op or variant, with the nearest name.
VariantChoice parse_variants(std::string_view text);
// The same among `ops`, which may hold more than the ops there are.
VariantChoice parse_variants(std::string_view text, std::span<const OpListing> ops);

}  // namespace kiln
