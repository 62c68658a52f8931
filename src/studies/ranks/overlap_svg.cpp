#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/plain_number.h"
#include "report/charts/svg_parts.h"
#include "report/charts/svg_text.h"
#include "studies/ranks/overlap_charts.h"

namespace kiln {
namespace {

constexpr double kWidth = 1000, kLeft = 120, kRight = 30, kTop = 84, kPanel = 128, kLane = 34, kBottom = 44;
constexpr double kPlot = kWidth - kLeft - kRight;

constexpr std::string_view kForward = "#66a5d4", kBackward = "#4477aa", kUpdate = "#44aa77",
                           kHidden = "#ddaa33", kExposed = "#cc3344", kStill = "url(#still)";

struct Drawn {
  double x, y, width, height;
  std::string_view fill;
  std::string title;  // the tooltip
};

std::string rectangle(const Drawn& r, bool outlined = false) {
  if (r.width <= 0) return {};
  return fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" "
      "fill=\"{}\"{}><title>{}</title></rect>\n",
      r.x, r.y, std::max(0.4, r.width), r.height, r.fill,
      outlined ? " stroke=\"white\" stroke-width=\"0.5\"" : "", svg_escaped(r.title));
}

class Panel {
 public:
  Panel(const OverlapLedger& ledger, double top, double us) : ledger_(ledger), top_(top), us_(us) {}

  std::string draw(const std::string& name) const {
    const OverlapTotals t = totals_of(ledger_);
    const double compute = top_ + 22, communication = compute + kLane + 8;
    std::string svg = fmt::format("<text x=\"{}\" y=\"{:.1f}\" font-weight=\"bold\">{}: {:.2f} ms</text>\n",
                                  kLeft, top_ + 12, svg_escaped(name), ledger_.end / 1e3);
    svg += svg_text({kWidth - kRight, top_ + 12, "end"},
                    fmt::format("communication {:.2f} ms, exposed {:.2f} ms, hidden {:.0f} %",
                                t.communication / 1e3, t.exposed / 1e3, 100 * t.hidden_share()));
    // Backward is shaded through both lanes: only there can communication hide.
    svg +=
        rectangle({x(ledger_.backward_begin), top_ + 18, x(ledger_.backward_end) - x(ledger_.backward_begin),
                   2 * kLane + 16, "#eef2f7", "backward"});
    svg += svg_text({kLeft - 8, compute + kLane / 2 + 4, "end"}, "compute");
    svg += svg_text({kLeft - 8, communication + kLane / 2 + 4, "end"}, "communication");
    svg += phase("forward", 0, ledger_.backward_begin, compute, kForward);
    svg += phase("backward", ledger_.backward_begin, ledger_.backward_end, compute, kBackward);
    svg += phase("sums, norm, update", ledger_.backward_end, ledger_.end, compute, kUpdate);
    for (const TimeSpan& w : ledger_.waits)
      svg += rectangle({x(w.begin), compute, x(w.end) - x(w.begin), kLane, kStill,
                        fmt::format("stalled for {:.0f} us", w.us())});
    for (const LedgerEntry& e : ledger_.entries) svg += bars(e, communication);
    return svg;
  }

 private:
  double x(double us) const { return kLeft + kPlot * us / us_; }
  std::string phase(const char* name, double begin, double end, double y, std::string_view fill) const {
    return rectangle(
        {x(begin), y, x(end) - x(begin), kLane, fill, fmt::format("{}: {:.0f} us", name, end - begin)});
  }
  // A call, with the parts of it for which the rank was stalled.
  std::string bars(const LedgerEntry& e, double y) const {
    const std::string title = fmt::format("{}, {} of {} bytes: ready {:.0f}, start {:.0f}, end {:.0f} us; {}",
                                          e.name, e.collective, e.bytes, e.ready, e.start, e.end,
                                          e.exposed > 0 ? fmt::format("exposed {:.0f} us", e.exposed)
                                                        : fmt::format("slack {:.0f} us", e.slack));
    std::string svg = rectangle({x(e.start), y, x(e.end) - x(e.start), kLane, kHidden, title}, true);
    for (const TimeSpan& w : ledger_.waits) {
      const double begin = std::max(w.begin, e.start), end = std::min(w.end, e.end);
      if (end > begin) svg += rectangle({x(begin), y, x(end) - x(begin), kLane, kExposed, title}, true);
    }
    return svg;
  }

  const OverlapLedger& ledger_;
  double top_, us_;
};

std::string key() {
  std::string svg;
  double at = kLeft;
  const auto add = [&](std::string_view fill, std::string_view text, double room) {
    svg += fmt::format(
        "<rect x=\"{:.0f}\" y=\"52\" width=\"16\" height=\"12\" fill=\"{}\" stroke=\"#999\" "
        "stroke-width=\"0.5\"/>\n",
        at, fill);
    svg += svg_text({at + 22, 62}, text);
    at += room;
  };
  add(kForward, "forward", 90);
  add(kBackward, "backward", 100);
  add(kUpdate, "sums, norm, update", 160);
  add(kStill, "stalled", 110);
  add(kHidden, "communication, hidden", 180);
  add(kExposed, "exposed", 90);
  return svg;
}

}  // namespace

std::string overlap_svg(const std::vector<NamedLedger>& steps, const std::string& title,
                        const std::string& below) {
  double us = 0;
  for (const NamedLedger& s : steps) us = std::max(us, s.ledger.end);
  if (us <= 0) us = 1;
  const double height = kTop + kPanel * static_cast<double>(steps.size()) + kBottom;
  std::string svg = svg_head(kWidth, height, kLeft, title) + svg_text({kLeft, 40}, below);
  svg +=
      "<defs><pattern id=\"still\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
      "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#f4f4f4\"/><rect width=\"2\" "
      "height=\"6\" fill=\"#bbb\"/></pattern></defs>\n";
  svg += key();
  const double bottom = height - kBottom, step = grid_step(us / 1e3);
  for (int line = 0; line * step <= us / 1e3 * 1.0001; ++line) {
    const double ms = line * step;
    const double x = kLeft + kPlot * 1e3 * ms / us;
    svg += fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#ddd\"/>\n", x,
                       kTop, bottom);
    svg += svg_text({x, bottom + 16, "middle"}, plain(std::round(ms * 1e6) / 1e6, 6));
  }
  svg += svg_text({kLeft + kPlot / 2, bottom + 34, "middle"}, "ms from the start of the step");
  double top = kTop;
  for (const NamedLedger& s : steps) {
    svg += Panel(s.ledger, top, us).draw(s.name);
    top += kPanel;
  }
  return svg + "</svg>\n";
}

}  // namespace kiln
