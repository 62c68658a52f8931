#include "report/charts/grouped_bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/charts/svg_parts.h"
#include "report/svg_text.h"

namespace kiln {
namespace {

constexpr double kHeight = 420, kLeft = 76, kRight = 24, kTop = 76, kBottom = 44;
constexpr double kPlotHeight = kHeight - kTop - kBottom;
constexpr double kBar = 30, kGap = 26;  // width of a bar, space between groups

}  // namespace

std::string grouped_bars_svg(const GroupedBars& chart) {
  double most = chart.reference;
  for (const BarGroup& g : chart.groups) {
    for (const GroupedBar& b : g.bars) most = std::max({most, b.value, b.predicted});
  }
  if (!(most > 0) || !std::isfinite(most)) most = 1;
  most *= 1.12;
  const double group_width = kBar * static_cast<double>(std::max<std::size_t>(1, chart.series.size()));
  const double plot_width =
      std::max(420.0, kGap + (group_width + kGap) *
                                 static_cast<double>(std::max<std::size_t>(1, chart.groups.size())));
  const auto y_of = [&](double v) { return kTop + kPlotHeight * (1 - v / most); };

  std::string svg = svg_head(kLeft + plot_width + kRight, kHeight, kLeft, chart.title);
  svg += svg_text({kLeft, 40}, chart.below_title);
  const double step = grid_step(most);
  for (int line = 0; line * step < most; ++line)
    svg += fmt::format("<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/>\n", kLeft,
                       kLeft + plot_width, y_of(line * step)) +
           svg_text({kLeft - 6, y_of(line * step) + 4, "end"}, fmt::format("{:g}", line * step));
  svg += fmt::format(
      "<text transform=\"translate(18 {:.1f}) rotate(-90)\" text-anchor=\"middle\" fill=\"#555\">{}</text>\n",
      kTop + kPlotHeight / 2, svg_escaped(chart.y_label));

  double key = kLeft;
  bool any_predicted = false;
  for (std::size_t s = 0; s < chart.series.size(); ++s) {
    svg += fmt::format("<rect x=\"{:.0f}\" y=\"50\" width=\"11\" height=\"11\" fill=\"{}\"/>\n", key,
                       svg_colour(s));
    svg += svg_text({key + 16, 60}, chart.series[s]);
    key += 36 + 7.0 * static_cast<double>(chart.series[s].size());
  }
  double left = kLeft + kGap;
  for (const BarGroup& g : chart.groups) {
    for (std::size_t s = 0; s < std::min(g.bars.size(), chart.series.size()); ++s) {
      const GroupedBar& b = g.bars[s];
      const double x = left + kBar * static_cast<double>(s);
      if (!(b.value > 0) || !std::isfinite(b.value)) continue;
      svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\" fill=\"{}\"/>\n",
                         x + 2, y_of(b.value), kBar - 4, y_of(0) - y_of(b.value), svg_colour(s));
      svg += fmt::format(
          "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"#222\" font-size=\"10\" "
          "stroke=\"white\" stroke-width=\"2\" paint-order=\"stroke\">{:.2f}{}</text>\n",
          x + kBar / 2, y_of(b.value) - 4, b.value, svg_escaped(chart.unit));
      if (b.predicted > 0) {
        any_predicted = true;
        svg += fmt::format(
            "<line x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"black\" "
            "stroke-width=\"2\"/>\n",
            x, x + kBar, y_of(b.predicted));
      }
    }
    svg += svg_text({left + group_width / 2, kTop + kPlotHeight + 18, "middle", "#222"}, g.name);
    left += group_width + kGap;
  }
  if (any_predicted) {
    svg += fmt::format(
        "<line x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"56\" y2=\"56\" stroke=\"black\" stroke-width=\"2\"/>\n", key,
        key + 18);
    svg += svg_text({key + 24, 60}, "predicted");
  }
  if (chart.reference > 0)
    svg += fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#333\" stroke-dasharray=\"4 "
        "3\"/>\n",
        kLeft, kLeft + plot_width, y_of(chart.reference));
  return svg + "</svg>\n";
}

}  // namespace kiln
