#include "report/svg_parts.h"

#include <fmt/format.h>

#include <array>

#include "report/svg_text.h"

namespace kiln {

std::string svg_head(double width, double height, double left, const std::string& title) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"22\" font-size=\"15\" font-weight=\"bold\">{3}</text>\n",
      width, height, left, svg_escaped(title));
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
