// Lines over two logarithmic axes, as SVG: a power law is a straight line there, and its slope the exponent.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace kiln {

struct ChartPoint {
  double x = 0, y = 0;  // above zero; other points are left out
};

// Measured lines are solid, with dots.
enum class LineStyle { measured, predicted, floor };

struct ChartLine {
  std::string name;        // is at its right end; none: it belongs to a line that has one
  std::size_t colour = 0;  // lines of one thing share it
  LineStyle style = LineStyle::measured;
  std::vector<ChartPoint> points;  // in rising order of x
};

struct ChartTick {
  double at = 0;
  std::string name;
};

struct LineChart {
  std::string title, below_title, x_label, y_label;
  std::vector<ChartTick> x_ticks;
  std::vector<ChartLine> lines;
  // What the legend calls each style: a prediction may be a fit or a roofline.
  std::array<std::string, 3> style_names = {"measured", "predicted", "floor"};
};

std::string line_chart_svg(const LineChart& chart);

}  // namespace kiln
