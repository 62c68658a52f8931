#include "report/charts/bar_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/plain_number.h"
#include "report/charts/svg_parts.h"
#include "report/charts/svg_text.h"

namespace kiln {
namespace {

constexpr double kWidth = 900, kLeastRight = 120, kTop = 64, kRow = 24, kBar = 15, kBottom = 50;
constexpr double kLetter = 7;  // of 12 px, on the average and a little more

std::string_view colour_of(int series) {
  constexpr std::array<std::string_view, 4> kColours = {"#777777", "#66a5d4", "#44aa77", "#ddaa33"};
  return kColours[static_cast<std::size_t>(series) % kColours.size()];
}

double largest(const BarChart& chart) {
  double most = chart.reference.value_or(0);
  for (const Bar& b : chart.bars)
    most = std::max({most, b.value.value_or(0), b.marker.value_or(0), b.spread ? b.spread->second : 0.0});
  return most > 0 ? most : 1;
}

std::string legend(const BarChart& chart, double left) {
  std::string svg;
  double x = left;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    svg += fmt::format(
        "<rect x=\"{:.0f}\" y=\"36\" width=\"11\" height=\"11\" fill=\"{}\"/><text x=\"{:.0f}\" "
        "y=\"46\">{}</text>\n",
        x, colour_of(static_cast<int>(i)), x + 15, svg_escaped(chart.series[i]));
    x += 35 + kLetter * static_cast<double>(chart.series[i].size());
  }
  if (!chart.marker.empty())
    svg += fmt::format(
        "<line x1=\"{0:.0f}\" x2=\"{0:.0f}\" y1=\"34\" y2=\"49\" stroke=\"#cc3311\" stroke-width=\"2\"/>"
        "<text x=\"{1:.0f}\" y=\"46\">{2}</text>\n",
        x + 4, x + 12, svg_escaped(chart.marker));
  return svg;
}

}  // namespace

std::string bar_chart_svg(const BarChart& chart) {
  std::size_t letters = 0, behind = 0;  // of the longest label, and of the longest text behind a bar
  for (const Bar& b : chart.bars) {
    letters = std::max(letters, b.label.size());
    behind = std::max(behind, b.text.size());
  }
  const double right = std::clamp(16 + kLetter * static_cast<double>(behind), kLeastRight, 420.0);
  const double left = std::min(380.0, 24 + kLetter * static_cast<double>(letters));
  const double plot = kWidth - left - right, below = kTop + kRow * static_cast<double>(chart.bars.size());
  const double height = below + kBottom, most = largest(chart);
  const auto x_of = [&](double value) { return left + plot * value / most; };
  std::string svg = svg_head(kWidth, height, 16, chart.title);
  svg += legend(chart, left);
  const double step = grid_step(most);
  for (int i = 0; i * step <= most * (1 + 1e-9); ++i)
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#ddd\"/><text x=\"{0:.1f}\" "
        "y=\"{3}\" text-anchor=\"middle\" fill=\"#555\">{4}</text>\n",
        x_of(i * step), kTop, below, below + 16, plain(i * step, 4));
  if (chart.reference)
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#333\" stroke-dasharray=\"4 "
        "3\"/>\n",
        x_of(*chart.reference), kTop, below);
  double y = kTop;
  for (const Bar& b : chart.bars) {
    const double middle = y + kRow / 2;
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", left - 6,
                       middle + 4, svg_escaped(b.label));
    const double end = x_of(b.value.value_or(0));
    if (b.value)
      svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>\n",
                         left, middle - kBar / 2, end - left, kBar, colour_of(b.series));
    if (b.spread)
      svg +=
          fmt::format("<path d=\"M{0:.1f} {2:.1f}v6m0 -3H{1:.1f}m0 -3v6\" stroke=\"#222\" fill=\"none\"/>\n",
                      x_of(std::max(0.0, b.spread->first)), x_of(b.spread->second), middle - 3);
    if (b.marker)
      svg += fmt::format(
          "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" stroke=\"#cc3311\" "
          "stroke-width=\"2\"/>\n",
          x_of(*b.marker), middle - kBar / 2 - 2, middle + kBar / 2 + 2);
    svg += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\" stroke=\"white\" stroke-width=\"3\" "
        "paint-order=\"stroke\">{}</text>\n",
        std::max({end, x_of(b.marker.value_or(0)), b.spread ? x_of(b.spread->second) : 0.0}) + 6, middle + 4,
        b.value ? "black" : "#a33", svg_escaped(b.text));
    y += kRow;
  }
  svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{}</text>\n</svg>\n",
                     left + plot / 2, height - 12, svg_escaped(chart.axis));
  return svg;
}

}  // namespace kiln
