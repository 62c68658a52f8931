// Pictures of what rows of `bench step` say together: time over context, parameters or batch, and how many
// times faster one precision or preset is than the other.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "report/charts/svg_parts.h"

namespace kiln {

// One for each axis along which some rows differ in nothing else, and for each kind of pair; none of rows
// that have nothing in common.
std::vector<NamedPicture> step_charts(std::span<const nlohmann::json> rows);

}  // namespace kiln
