#include <fmt/format.h>

#include <algorithm>

#include "base/plain_number.h"
#include "report/charts/line_chart.h"
#include "studies/ranks/overlap_charts.h"
#include "studies/ranks/zero.h"

namespace kiln {
namespace {

// A line of each kind for each stage, through its numbers of ranks.
std::vector<ChartLine> lines_of(const BenchZeroReport& report,
                                const std::function<ChartPoint(const ZeroRow&, LineStyle)>& point) {
  std::vector<ChartLine> lines;
  for (std::size_t s = 0; s < report.request.stages.size(); ++s) {
    const std::string& stage = report.request.stages[s];
    for (const LineStyle style : {LineStyle::measured, LineStyle::predicted, LineStyle::floor}) {
      ChartLine line;
      line.colour = s;
      line.style = style;
      if (style == LineStyle::predicted) line.name = fmt::format("stage {}", stage);
      for (const ZeroRow& r : report.rows) {
        if (r.stage == stage && (r.measured || style != LineStyle::measured))
          line.points.push_back(point(r, style));
      }
      if (!line.points.empty()) lines.push_back(std::move(line));
    }
  }
  return lines;
}

double state_in(const ZeroRow& r, LineStyle style) {
  const double bytes = style == LineStyle::measured    ? *r.state()
                       : style == LineStyle::predicted ? r.predicted_state()
                                                       : r.theory.state();
  return bytes / 0x1p20;
}

double sent_in(const ZeroRow& r, LineStyle style) {
  const double bytes = style == LineStyle::measured    ? sent_bytes(r.measured->ledger, r.ranks)
                       : style == LineStyle::predicted ? sent_bytes(r.planned.ledger, r.ranks)
                                                       : r.theory.sent;
  return bytes / 0x1p20;
}

// Of several ranks, as many as were measured.
std::vector<NamedLedger> steps_of_most_ranks(const BenchZeroReport& report) {
  int most = 1;
  for (const ZeroRow& r : report.rows) {
    if (r.measured) most = std::max(most, r.ranks);
  }
  std::vector<NamedLedger> steps;
  for (const ZeroRow& r : report.rows) {
    if (r.measured && most > 1 && r.ranks == most)
      steps.push_back({fmt::format("stage {}, {} ranks", r.stage, r.ranks), r.measured->ledger});
  }
  return steps;
}

}  // namespace

std::vector<NamedChart> zero_charts(const BenchZeroReport& report) {
  LineChart over_ranks;
  over_ranks.title = "What a rank keeps between steps";
  over_ranks.below_title = zero_caption(report);
  over_ranks.x_label = "ranks";
  over_ranks.y_label = "MiB of weights, gradients and moments";
  for (const int n : report.request.ranks)
    over_ranks.x_ticks.push_back({static_cast<double>(n), fmt::format("{}", n)});
  over_ranks.lines = lines_of(report, [](const ZeroRow& r, LineStyle style) {
    return ChartPoint{static_cast<double>(r.ranks), state_in(r, style)};
  });
  LineChart against = over_ranks;
  against.title = "Memory against communication: each line goes through the numbers of ranks";
  against.x_label = "MiB a rank sends in a step";
  against.x_ticks.clear();
  const double whole = static_cast<double>(report.parameters) * 4 / 0x1p20;
  for (const double times : {0.5, 1.0, 1.5, 2.0, 2.5, 3.0})
    against.x_ticks.push_back({times * whole, plain(times * whole, 3)});
  against.lines = lines_of(report, [](const ZeroRow& r, LineStyle style) {
    return ChartPoint{sent_in(r, style), state_in(r, style)};
  });
  std::vector<NamedChart> charts = {{"memory-over-ranks", line_chart_svg(over_ranks)},
                                    {"memory-against-communication", line_chart_svg(against)}};
  if (const std::vector<NamedLedger> steps = steps_of_most_ranks(report); !steps.empty())
    charts.push_back({"overlap", overlap_svg(steps, "One step of rank 0, by stage", zero_caption(report))});
  return charts;
}

}  // namespace kiln
