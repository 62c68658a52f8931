#include "report/charts/memory_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/plain_number.h"
#include "report/charts/svg_parts.h"
#include "report/charts/svg_text.h"

namespace kiln {
namespace {

constexpr double kWidth = 1100, kHeight = 440, kLeft = 76, kRight = 16, kTop = 64, kBottom = 56;
constexpr double kPlotWidth = kWidth - kLeft - kRight, kPlotHeight = kHeight - kTop - kBottom;
constexpr std::size_t kColumns = 1000;

// The moment in a column of the chart at which most was in use.
struct Column {
  std::size_t total = 0;
  PerTag<std::size_t> tags{};
  Phase phase = Phase::setup;
  bool any = false;
};

// Where an event is on the horizontal axis, from 0 to 1: by the clock where that is the device's.
class Axis {
 public:
  explicit Axis(const MemoryRecord& r) : record_(r) {
    if (r.events.empty()) return;
    first_ = r.events.front().time_ns;
    span_ = std::max<int64_t>(1, r.events.back().time_ns - first_);
  }
  double at(std::size_t event) const {
    if (record_.timed)
      return static_cast<double>(record_.events[event].time_ns - first_) / static_cast<double>(span_);
    return (static_cast<double>(event) + 0.5) /
           static_cast<double>(std::max<std::size_t>(1, record_.events.size()));
  }
  std::string label() const {
    const double ms = static_cast<double>(span_) / 1e6;
    return record_.timed ? fmt::format("time, {} ms in total", plain(ms, 3))
                         : fmt::format("{} allocations and frees, in order", record_.events.size());
  }

 private:
  const MemoryRecord& record_;
  int64_t first_ = 0, span_ = 1;
};

std::vector<Column> columns_of(const MemoryRecord& record, const MemoryAnalysis& a, const Axis& axis) {
  std::vector<Column> columns(kColumns);
  PerTag<std::size_t> tags{};
  Column left_behind;    // by the last event
  std::size_t done = 0;  // columns that have all they get
  for (const MemoryEvent& e : record.before) {
    if (e.kind == AllocEvent::Kind::alloc) tags[e.tag] += e.bytes;
  }
  for (std::size_t i = 0; i < record.events.size(); ++i) {
    const MemoryEvent& e = record.events[i];
    if (e.kind == AllocEvent::Kind::alloc) tags[e.tag] += e.bytes;
    if (e.kind == AllocEvent::Kind::free) tags[e.tag] -= std::min(tags[e.tag], e.bytes);
    const auto at = std::min(kColumns - 1, static_cast<std::size_t>(axis.at(i) * kColumns));
    for (; done < at; ++done) {  // between events nothing changes
      if (!columns[done].any) columns[done] = left_behind;
    }
    Column& c = columns[at];
    if (!c.any || a.in_use[i] >= c.total) c = {a.in_use[i], tags, e.phase, true};
    left_behind = {a.in_use[i], tags, e.phase, true};
  }
  for (; done < kColumns; ++done) {
    if (!columns[done].any) columns[done] = left_behind;
  }
  return columns;
}

double x_of(double share) { return kLeft + share * kPlotWidth; }

// The layers of the chart, from the back to the front.
class MemoryChart {
 public:
  MemoryChart(const MemoryRecord& record, const MemoryAnalysis& analysis)
      : record_(record), analysis_(analysis), axis_(record), columns_(columns_of(record, analysis, axis_)) {}
  const Axis& axis() const { return axis_; }
  std::string phases() const;
  std::string grid() const;
  std::string tags() const;
  std::string peaks() const;
  std::string marks() const;

 private:
  double y_of(double bytes) const { return kTop + kPlotHeight * (1 - bytes / most_); }

  const MemoryRecord& record_;
  const MemoryAnalysis& analysis_;
  Axis axis_;
  std::vector<Column> columns_;
  double most_ = 1.12 * std::max<double>(1, static_cast<double>(analysis_.peak.bytes));
};

// One rectangle for each run of columns, named where it is wide enough.
std::string MemoryChart::phases() const {
  std::string svg;
  for (std::size_t from = 0; from < kColumns;) {
    std::size_t to = from;
    while (to < kColumns && columns_[to].phase == columns_[from].phase) ++to;
    const double x = x_of(static_cast<double>(from) / kColumns),
                 x2 = x_of(static_cast<double>(to) / kColumns);
    const std::string_view name = name_of(columns_[from].phase);
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>\n", x, kTop,
                       x2 - x, kPlotHeight, colour_of(columns_[from].phase));
    if (x2 - x > 7.0 * static_cast<double>(name.size()))
      svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" fill=\"#555\" text-anchor=\"middle\">{}</text>\n",
                         (x + x2) / 2, kTop + kPlotHeight + 16, name);
    from = to;
  }
  return svg;
}

// Lines at round numbers of bytes.
std::string MemoryChart::grid() const {
  std::string svg;
  const double step = grid_step_of_bytes(most_);
  for (int line = 0; line * step < most_; ++line) {
    const double b = line * step;
    svg += fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\" fill=\"#555\">{5}</text>\n",
        kLeft, kLeft + kPlotWidth, y_of(b), kLeft - 6, y_of(b) + 4, human({static_cast<std::size_t>(b)}));
  }
  return svg;
}

// Tags, from the ones that stay to the ones that come and go, with the legend.
std::string MemoryChart::tags() const {
  std::string svg;
  std::vector<double> base(kColumns, 0.0);
  double legend = kLeft;
  for (const Tag tag : {Tag::param, Tag::master, Tag::grad, Tag::optim, Tag::comm, Tag::data, Tag::activation,
                        Tag::workspace}) {
    if (analysis_.own_peak[tag] == 0) continue;
    std::string top, bottom;
    const std::vector<double> lower = base;
    for (std::size_t c = 0; c < kColumns; ++c) {
      const double x = x_of(static_cast<double>(c) / kColumns),
                   x2 = x_of(static_cast<double>(c + 1) / kColumns);
      base[c] += static_cast<double>(columns_[c].tags[tag]);
      top += fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", x, y_of(base[c]), x2, y_of(base[c]));
    }
    for (std::size_t c = kColumns; c-- > 0;) {
      const double x = x_of(static_cast<double>(c) / kColumns),
                   x2 = x_of(static_cast<double>(c + 1) / kColumns);
      bottom += fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", x2, y_of(lower[c]), x, y_of(lower[c]));
    }
    svg += fmt::format("<polygon points=\"{}{}\" fill=\"{}\"/>\n", top, bottom, colour_of(tag));
    svg += fmt::format(
        "<rect x=\"{:.0f}\" y=\"36\" width=\"11\" height=\"11\" fill=\"{}\"/><text x=\"{:.0f}\" y=\"46\">{} "
        "{}"
        "</text>\n",
        legend, colour_of(tag), legend + 15, name_of(tag), human({analysis_.peak.by_tag[tag]}));
    legend +=
        40 + 6.6 * static_cast<double>(name_of(tag).size() + human({analysis_.peak.by_tag[tag]}).size());
  }
  return svg;
}

// Each phase's peak is a dot with its name next to it; names that would overlap are set lower.
std::string MemoryChart::peaks() const {
  std::string svg;
  std::vector<std::pair<double, double>> taken;
  std::vector<PhasePeak> peaks = analysis_.phases;
  std::stable_sort(peaks.begin(), peaks.end(),
                   [](const PhasePeak& p, const PhasePeak& q) { return p.peak.bytes > q.peak.bytes; });
  for (const PhasePeak& p : peaks) {
    const double x = x_of(axis_.at(p.peak.event)), y = y_of(static_cast<double>(p.peak.bytes));
    const bool highest = p.peak.event == analysis_.peak.event;
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"black\"/>\n", x, y,
                       highest ? 4 : 2.5);
    const bool right = x > kLeft + 0.75 * kPlotWidth;
    double at = y - 7;
    while (std::any_of(taken.begin(), taken.end(), [&](const auto& t) {
      return std::abs(t.first - x) < 190 && std::abs(t.second - at) < 13;
    }))
      at += 14;
    taken.emplace_back(x, at);
    svg += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" stroke=\"white\" stroke-width=\"3\" "
        "paint-order=\"stroke\"{}>{}{} {}</text>\n",
        right ? x - 7 : x + 7, at, right ? "end" : "start", highest ? " font-weight=\"bold\"" : "",
        highest ? "peak, " : "", name_of(p.phase), human({p.peak.bytes}));
  }
  return svg;
}

// Marks that would overlap are left out.
std::string MemoryChart::marks() const {
  std::string svg;
  double next = kLeft;
  for (const MemoryMark& m : record_.marks) {
    if (m.event >= record_.events.size()) continue;
    const double x = x_of(axis_.at(m.event));
    if (x < next) continue;
    next = x + 60;
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#333\" stroke-dasharray=\"3 3\"/>"
        "<text x=\"{3:.1f}\" y=\"{4}\" fill=\"#333\">{5}</text>\n",
        x, kTop, kTop + kPlotHeight, x + 4, kTop + 12, svg_escaped(m.name));
  }
  return svg;
}

}  // namespace

std::string_view colour_of(Tag tag) {
  constexpr std::array<std::string_view, kTagCount> kColours = {"#4477aa", "#66a5d4", "#cc6677", "#ddaa33",
                                                                "#44aa77", "#aa4499", "#999933", "#777777"};
  return kColours[static_cast<std::size_t>(tag)];
}

std::string_view colour_of(Phase phase) {
  constexpr std::array<std::string_view, kPhaseCount> kColours = {"#f4f4f4", "#e8f1fb", "#fdf3dc", "#fbe9e7",
                                                                  "#eaf5ea"};
  return kColours[static_cast<std::size_t>(phase)];
}

std::string memory_svg(const MemoryRecord& record, const MemoryAnalysis& a, const std::string& title) {
  const MemoryChart chart(record, a);
  std::string svg = svg_head(kWidth, kHeight, kLeft, title);
  svg += chart.phases() + chart.grid() + chart.tags() + chart.peaks() + chart.marks();
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{}</text>\n</svg>\n",
                     kLeft + kPlotWidth / 2, kHeight - 14, chart.axis().label());
  return svg;
}

}  // namespace kiln
