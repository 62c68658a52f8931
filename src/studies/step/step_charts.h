// Charts over several rows of `bench step`: time over context, parameters or batch, and how many
// times faster one precision or preset is than the other.
#pragma once

#include <span>
#include <vector>

#include "base/json.h"
#include "report/charts/svg_parts.h"

namespace kiln {

// One for each axis along which some rows differ in nothing else, and for each kind of pair; none of rows
// that have nothing in common.
std::vector<NamedChart> step_charts(std::span<const Json> rows);

}  // namespace kiln
