// Figures of several rows as one SVG of horizontal bars, each with its label before it and its figure after
// it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kiln {

struct Bar {
  std::string label;
  std::optional<double> value;                           // nothing: no bar, only the text
  std::string text;                                      // behind the bar
  std::optional<double> marker;                          // a tick across the bar: what was predicted
  int series = 0;                                        // decides its colour
  std::optional<std::pair<double, double>> spread = {};  // a whisker from the one to the other
};

struct BarChart {
  std::string title;
  std::vector<std::string> series;  // names for the legend; none: no legend
  std::string marker;               // what the ticks are, for the legend; empty: there are none
  std::string axis;                 // below: what is drawn, in what unit
  std::optional<double> reference;  // a line through all bars: the baseline's figure
  std::vector<Bar> bars;
};

std::string bar_chart_svg(const BarChart& chart);

}  // namespace kiln
