#include "report/charts/svg_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "report/charts/svg_text.h"

namespace kiln {

std::string svg_head(double width, double height, double left, const std::string& title) {
  // A title of 15 px that does not fit is smaller, down to what can still be read.
  const double needed = 8.6 * static_cast<double>(title.size()), free = width - left - 12;
  const double size = needed > free ? std::max(10.0, 15 * free / needed) : 15;
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"22\" font-size=\"{4:.1f}\" font-weight=\"bold\">{3}</text>\n",
      width, height, left, svg_escaped(title), size);
}

double grid_step(double most) {
  const double unit = std::pow(10.0, std::floor(std::log10(most)) - 1);
  for (const double times : {1.0, 2.0, 5.0, 10.0, 20.0, 50.0}) {
    if (most / (times * unit) <= 8) return times * unit;
  }
  return most;
}

double grid_step_of_bytes(double most) {
  const double unit = std::pow(1024.0, std::floor(std::log(std::max(most, 1.0)) / std::log(1024.0)));
  for (double step = unit / 1024;; step *= 2) {
    if (most / step <= 8) return step;
  }
}

std::string_view svg_colour(std::size_t n) {
  constexpr std::array<std::string_view, 8> kColours = {"#4477aa", "#cc6677", "#44aa77", "#ddaa33",
                                                        "#aa4499", "#66a5d4", "#999933", "#777777"};
  return kColours[n % kColours.size()];
}

std::string svg_text(const SvgText& at, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" fill=\"{}\">{}</text>\n", at.x, at.y,
                     at.anchor, at.colour, svg_escaped(text));
}

}  // namespace kiln
