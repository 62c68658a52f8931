// "Did you mean ...?" for commands, options, ops and variants.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kiln {

// The name closest to `wanted` by edit distance (insert, delete, replace, swap of neighbours; case ignored),
// or empty when none is close enough to be a likely slip. The first of equals wins.
std::string nearest_name(std::string_view wanted, std::span<const std::string_view> names);

}  // namespace kiln
