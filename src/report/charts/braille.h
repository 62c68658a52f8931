// Curves for a terminal that shows Unicode: a chart of braille dots, two by four to a character, and a line
// of eight heights.
#pragma once

#include <span>
#include <string>

namespace kiln {

// `width` and `height` count the characters of the chart itself; the scale is left of it. Neighbouring points
// are joined. Empty where there is nothing to show.
std::string draw_braille_curve(std::span<const double> values, int width, int height);

// One line of `width` characters: means of equal shares of the values, from the least to the largest. In
// ASCII where `unicode` is false.
std::string sparkline(std::span<const double> values, int width, bool unicode);

}  // namespace kiln
