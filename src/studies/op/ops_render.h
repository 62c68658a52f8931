// The forms in which `kiln ops` shows a listing.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/variant_choice.h"
#include "ops/op_list.h"

namespace kiln {

inline constexpr std::size_t kTerminalColumns = 80;

// A table for the terminal; '*' marks the variant that a run on the listing's device takes: the one chosen,
// or else the first that can run there.
std::string ops_text(std::span<const OpListing> ops, const VariantChoice& chosen);

// Throws Error where a variant requested by name cannot run on the listing's device, with every reason.
void check_chosen(std::span<const OpListing> ops, const VariantChoice& chosen);

std::string ops_json(std::span<const OpListing> ops);

// docs/ops.md: names only, because what can run depends on the machine.
std::string ops_markdown(std::span<const OpListing> ops);

}  // namespace kiln
