// Shared by the charts: the head of the file, text at a position, colours that are distinct in print.
#pragma once

#include <string>
#include <string_view>

namespace kiln {

// The opening tag, a white ground and a title at `left`; the file ends with "</svg>\n".
std::string svg_head(double width, double height, double left, const std::string& title);

// How far apart the lines of a grid from 0 to `most` are, four to eight of them or so: 1, 2 or 5 times a
// power of ten; of bytes a power of two.
double grid_step(double most);
double grid_step_of_bytes(double most);

// The n-th of a row of things, repeating after eight.
std::string_view svg_colour(std::size_t n);

// A whole file.
struct NamedChart {
  std::string name;  // "time-over-ctx", without an ending
  std::string svg;
};

struct SvgText {
  double x, y;
  std::string_view anchor = "start";  // start, middle, end
  std::string_view colour = "#555";
};
std::string svg_text(const SvgText& at, std::string_view text);

}  // namespace kiln
