// A curve in a terminal: each column the mean of its share of the points, each row a band of values.
#pragma once

#include <span>
#include <string>

namespace kiln {

// `width` and `height` count the characters of the chart itself; the scale is left of it. Values that
// are not finite are left out. Empty where there is nothing to show.
std::string draw_curve(std::span<const double> values, int width, int height);

}  // namespace kiln
