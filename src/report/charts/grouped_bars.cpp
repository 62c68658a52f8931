#include "report/charts/grouped_bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/plain_number.h"
#include "report/charts/svg_parts.h"
#include "report/charts/svg_text.h"

namespace kiln {
namespace {

constexpr double kLeast = 76, kRight = 24, kTop = 76, kBottom = 44;
constexpr double kPlotHeight = 300;
constexpr double kLetter = 6.8;         // of 12 px, on the average and a little more
constexpr double kBar = 30, kGap = 26;  // width of a bar, space between groups

// The top of the scale: the largest value, with some air.
double top_of(const GroupedBars& chart) {
  double most = chart.reference;
  for (const BarGroup& g : chart.groups) {
    for (const GroupedBar& b : g.bars) most = std::max({most, b.value, b.marker});
  }
  if (!(most > 0) || !std::isfinite(most)) most = 1;
  return 1.12 * most;
}

std::size_t longest_name(const GroupedBars& chart) {
  std::size_t most = 0;
  for (const BarGroup& g : chart.groups) most = std::max(most, g.name.size());
  return most;
}

// A chart and its measures. Each part gives its own elements.
class Drawing {
 public:
  explicit Drawing(const GroupedBars& chart)
      : chart_(chart),
        most_(top_of(chart)),
        group_width_(kBar * static_cast<double>(std::max<std::size_t>(1, chart.series.size()))),
        plot_width_(std::max(420.0, kGap + (group_width_ + kGap) * static_cast<double>(std::max<std::size_t>(
                                                                       1, chart.groups.size())))),
        name_width_(kLetter * static_cast<double>(longest_name(chart))),
        slanted_(name_width_ > group_width_ + kGap - 6),
        left_(slanted_ ? std::max(kLeast, kSlant * name_width_ - group_width_ / 2) : kLeast),
        bottom_(slanted_ ? kBottom + kSlant * name_width_ / 2 : kBottom) {}

  std::string svg() const {
    return svg_head(left_ + plot_width_ + kRight, kTop + kPlotHeight + bottom_, left_, chart_.title) +
           svg_text({left_, 40}, chart_.below_title) + grid() + key() + bars() + reference() + "</svg>\n";
  }

 private:
  double y_of(double v) const { return kTop + kPlotHeight * (1 - v / most_); }

  std::string grid() const {
    std::string svg;
    const double step = grid_step(most_);
    for (int line = 0; line * step < most_; ++line)
      svg += fmt::format("<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/>\n",
                         left_, left_ + plot_width_, y_of(line * step)) +
             svg_text({left_ - 6, y_of(line * step) + 4, "end"}, plain(line * step, 6));
    return svg + fmt::format(
                     "<text transform=\"translate({:.0f} {:.1f}) rotate(-90)\" text-anchor=\"middle\" "
                     "fill=\"#555\">{}</text>\n",
                     left_ - 58, kTop + kPlotHeight / 2, svg_escaped(chart_.y_label));
  }

  std::string key() const {
    std::string svg;
    double left = left_;
    for (std::size_t s = 0; s < chart_.series.size(); ++s) {
      svg += fmt::format("<rect x=\"{:.0f}\" y=\"50\" width=\"11\" height=\"11\" fill=\"{}\"/>\n", left,
                         svg_colour(s));
      svg += svg_text({left + 16, 60}, chart_.series[s]);
      left += 36 + 7.0 * static_cast<double>(chart_.series[s].size());
    }
    if (!any_marker()) return svg;
    return svg +
           fmt::format(
               "<line x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"56\" y2=\"56\" stroke=\"black\" "
               "stroke-width=\"2\"/>\n",
               left, left + 18) +
           svg_text({left + 24, 60}, chart_.marker);
  }

  // Of a bar that is drawn.
  static bool is_drawn(const GroupedBar& b) { return b.value > 0 && std::isfinite(b.value); }
  std::size_t bars_of(const BarGroup& g) const { return std::min(g.bars.size(), chart_.series.size()); }
  bool any_marker() const {
    return std::any_of(chart_.groups.begin(), chart_.groups.end(), [&](const BarGroup& g) {
      return std::any_of(g.bars.begin(), g.bars.begin() + static_cast<std::ptrdiff_t>(bars_of(g)),
                         [](const GroupedBar& b) { return is_drawn(b) && b.marker > 0; });
    });
  }

  std::string bars() const {
    std::string svg;
    double left = left_ + kGap;
    for (const BarGroup& g : chart_.groups) {
      for (std::size_t s = 0; s < bars_of(g); ++s)
        if (is_drawn(g.bars[s])) svg += bar(g.bars[s], left + kBar * static_cast<double>(s), svg_colour(s));
      svg += name_below(g.name, left + group_width_ / 2);
      left += group_width_ + kGap;
    }
    return svg;
  }

  // Names that would run into each other go up to their bars at a slant.
  std::string name_below(const std::string& name, double middle) const {
    const double y = kTop + kPlotHeight + 18;
    if (!slanted_) return svg_text({middle, y, "middle", "#222"}, name);
    return fmt::format(
        "<text transform=\"translate({:.1f} {:.1f}) rotate(-30)\" text-anchor=\"end\" "
        "fill=\"#222\">{}</text>\n",
        middle + 6, y - 4, svg_escaped(name));
  }

  std::string bar(const GroupedBar& b, double x, std::string_view colour) const {
    std::string svg =
        fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\" fill=\"{}\"/>\n", x + 2,
                    y_of(b.value), kBar - 4, y_of(0) - y_of(b.value), colour);
    svg += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"#222\" font-size=\"10\" "
        "stroke=\"white\" stroke-width=\"2\" paint-order=\"stroke\">{:.2f}{}</text>\n",
        x + kBar / 2, y_of(b.value) - 4, b.value, svg_escaped(chart_.unit));
    if (b.marker > 0)
      svg += fmt::format(
          "<line x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"black\" "
          "stroke-width=\"2\"/>\n",
          x, x + kBar, y_of(b.marker));
    return svg;
  }

  std::string reference() const {
    if (!(chart_.reference > 0)) return {};
    return fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#333\" "
        "stroke-dasharray=\"4 3\"/>\n",
        left_, left_ + plot_width_, y_of(chart_.reference));
  }

  static constexpr double kSlant = 0.87;  // of a name's width, across; half of it down
  const GroupedBars& chart_;
  double most_, group_width_, plot_width_, name_width_;
  bool slanted_;
  double left_, bottom_;
};

}  // namespace

std::string grouped_bars_svg(const GroupedBars& chart) { return Drawing(chart).svg(); }

}  // namespace kiln
