#include "report/charts/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/plain_number.h"
#include "report/charts/svg_parts.h"
#include "report/charts/svg_text.h"

namespace kiln {
namespace {

constexpr double kWidth = 900, kHeight = 480, kLeft = 76, kRight = 230, kTop = 76, kBottom = 56;
constexpr double kPlotWidth = kWidth - kLeft - kRight, kPlotHeight = kHeight - kTop - kBottom;
constexpr std::array kStyles = {LineStyle::measured, LineStyle::predicted, LineStyle::floor};

std::string_view dashes_of(LineStyle s) {
  constexpr std::array<std::string_view, 3> kDashes = {"none", "6 4", "1 4"};
  return kDashes[static_cast<std::size_t>(s)];
}

bool drawable(const ChartPoint& p) { return p.x > 0 && p.y > 0 && std::isfinite(p.x) && std::isfinite(p.y); }

// From the least to the greatest value, with some air; in logarithms.
struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    low = std::min(low, std::log10(value));
    high = std::max(high, std::log10(value));
  }
  void pad(double least) {
    if (low > high) low = 0, high = 1;  // nothing to draw
    const double air = std::max(least, 0.06 * (high - low));
    low -= air;
    high += air;
  }
  double share(double value) const { return (std::log10(value) - low) / (high - low); }
};

// 1, 2, 5, 10, ... inside the range; whole decades alone where that gives too many.
std::vector<double> ticks_in(const Range& r) {
  std::vector<double> all, decades;
  for (int e = static_cast<int>(std::floor(r.low)); e <= static_cast<int>(std::ceil(r.high)); ++e) {
    for (const double m : {1.0, 2.0, 5.0}) {
      const double value = m * std::pow(10.0, e);
      if (std::log10(value) < r.low || std::log10(value) > r.high) continue;
      all.push_back(value);
      if (m == 1.0) decades.push_back(value);
    }
  }
  return all.size() > 9 && decades.size() > 1 ? decades : all;
}

// Where labels go that would overlap: each at least a line below the one above.
std::vector<double> spread(std::vector<double> wanted) {
  std::vector<std::size_t> order(wanted.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return wanted[a] < wanted[b]; });
  constexpr double kLine = 14;
  const double room = kTop + kPlotHeight - kLine * static_cast<double>(wanted.size());
  double next = std::min(order.empty() ? 0.0 : wanted[order.front()], std::max(kTop, room));
  for (const std::size_t i : order) next = (wanted[i] = std::max(wanted[i], next)) + kLine;
  for (auto i = order.rbegin(); i != order.rend(); ++i) {  // and none below the plot
    const auto below = static_cast<double>(i - order.rbegin());
    wanted[*i] = std::min(wanted[*i], kTop + kPlotHeight - kLine * below);
  }
  return wanted;
}

// Which style of line is what; only those that are drawn.
std::string legend(const LineChart& chart) {
  std::string svg;
  double key = kLeft;
  for (const LineStyle style : kStyles) {
    const auto has = [&](const ChartLine& l) { return l.style == style; };
    if (std::none_of(chart.lines.begin(), chart.lines.end(), has)) continue;
    svg += fmt::format(
        "<line x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"56\" y2=\"56\" stroke=\"#333\" stroke-width=\"1.8\" "
        "stroke-dasharray=\"{}\"/>\n",
        key, key + 26, dashes_of(style));
    svg += svg_text({key + 32, 60}, chart.style_names[static_cast<std::size_t>(style)]);
    key += 110;
  }
  return svg;
}

}  // namespace

std::string line_chart_svg(const LineChart& chart) {
  Range xs, ys;
  for (const ChartLine& line : chart.lines) {
    for (const ChartPoint& p : line.points) {
      if (!drawable(p)) continue;
      xs.add(p.x);
      ys.add(p.y);
    }
  }
  xs.pad(0.03);
  ys.pad(0.05);
  const auto x_of = [&](double x) { return kLeft + kPlotWidth * xs.share(x); };
  const auto y_of = [&](double y) { return kTop + kPlotHeight * (1 - ys.share(y)); };

  std::string svg = svg_head(kWidth, kHeight, kLeft, chart.title);
  svg += svg_text({kLeft, 40}, chart.below_title);
  for (const double y : ticks_in(ys))
    svg += fmt::format("<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/>\n", kLeft,
                       kLeft + kPlotWidth, y_of(y)) +
           svg_text({kLeft - 6, y_of(y) + 4, "end"}, plain(y, 6));
  for (const ChartTick& tick : chart.x_ticks) {
    if (tick.at <= 0 || xs.share(tick.at) < 0 || xs.share(tick.at) > 1) continue;
    svg += fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#ddd\"/>\n",
                       x_of(tick.at), kTop, kTop + kPlotHeight) +
           svg_text({x_of(tick.at), kTop + kPlotHeight + 16, "middle"}, tick.name);
  }
  svg += svg_text({kLeft + kPlotWidth / 2, kHeight - 14, "middle"}, chart.x_label);
  svg += fmt::format(
      "<text transform=\"translate(18 {:.1f}) rotate(-90)\" text-anchor=\"middle\" fill=\"#555\">{}</text>\n",
      kTop + kPlotHeight / 2, svg_escaped(chart.y_label));

  svg += legend(chart);
  std::vector<double> ends;
  std::vector<const ChartLine*> named;
  for (const ChartLine& line : chart.lines) {
    std::string points, dots;
    const ChartPoint* last = nullptr;
    for (const ChartPoint& p : line.points) {
      if (!drawable(p)) continue;
      last = &p;
      points += fmt::format("{:.1f},{:.1f} ", x_of(p.x), y_of(p.y));
      if (line.style == LineStyle::measured)
        dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n", x_of(p.x),
                            y_of(p.y), svg_colour(line.colour));
    }
    if (last == nullptr) continue;
    svg += fmt::format(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-dasharray=\"{}\"/>\n",
        points, svg_colour(line.colour), line.style == LineStyle::measured ? 2 : 1.4, dashes_of(line.style));
    svg += dots;
    if (line.name.empty()) continue;
    named.push_back(&line);
    ends.push_back(y_of(last->y) + 4);
  }
  ends = spread(std::move(ends));
  for (std::size_t i = 0; i < named.size(); ++i)
    svg +=
        svg_text({kLeft + kPlotWidth + 12, ends[i], "start", svg_colour(named[i]->colour)}, named[i]->name);
  return svg + "</svg>\n";
}

}  // namespace kiln
