// Bars in groups, as SVG: one group for each model, say, and in it one bar for each thing measured of it. A
// dark line across a bar is what theory says of it.
#pragma once

#include <string>
#include <vector>

namespace kiln {

struct GroupedBar {
  double value = 0;   // 0: none, and its place stays empty
  double marker = 0;  // 0: not known
};

struct BarGroup {
  std::string name;
  std::vector<GroupedBar> bars;  // one for each of the chart's series
};

struct GroupedBars {
  std::string title, below_title, y_label, unit;  // the unit follows each figure: "x"
  double reference = 0;                           // a line across the whole chart: 1 of a speed-up; 0: none
  std::string marker = "predicted";               // what the dark lines are
  std::vector<std::string> series;
  std::vector<BarGroup> groups;
};

std::string grouped_bars_svg(const GroupedBars& chart);

}  // namespace kiln
