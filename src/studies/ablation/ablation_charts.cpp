#include "studies/ablation/ablation_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/json.h"
#include "rows/row_values.h"

namespace kiln {
namespace {

int series_of(const AblationLine& l) {
  const std::string group = text_at(l.row, "group");
  return group == "alone" ? 1 : group == "added" ? 2 : 0;
}

std::string study_name(std::span<const AblationLine> lines) {
  const Json& row = lines.front().row;
  return fmt::format("{}, batch {}, context {}, {}", text_at(row, "size"), text_at(row, "batch"),
                     text_at(row, "ctx"), text_at(row, "device"));
}

// Of the pairs of steps whose median the bar is, the middle 60 %; so the bar ends within. Nothing where the
// two were not timed by turns.
std::optional<std::pair<double, double>> spread_of(const AblationLine& l) {
  const std::vector<double> before = samples_of(l.row, "baseline_samples"), own = samples_of(l.row);
  if (before.empty() || before.size() != own.size() || text_at(l.row, "group") == "baseline")
    return std::nullopt;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < own.size(); ++i)
    if (own[i] > 0) ratios.push_back(before[i] / own[i]);
  if (ratios.size() < 3) return std::nullopt;
  std::sort(ratios.begin(), ratios.end());
  const auto at = [&](double share) {
    return ratios[static_cast<std::size_t>(share * static_cast<double>(ratios.size() - 1))];
  };
  return std::pair{at(0.2), at(0.8)};
}

}  // namespace

BarChart speedup_chart(std::span<const AblationLine> lines) {
  BarChart chart;
  chart.title = "Speed-up over the baseline: " + study_name(lines);
  chart.series = {"baseline", "by itself", "added up"};
  chart.marker = "own roofline of operations and bytes";
  chart.axis = "times as fast as the baseline; median of pairs of steps, whiskers: the middle 60 % of them";
  chart.reference = 1;
  for (const AblationLine& l : lines) {
    if (!l.in_main_table()) continue;
    Bar bar{l.label, std::nullopt, l.gate_text(), std::nullopt, series_of(l)};
    if (l.timed() && l.speed.ratio > 0) {
      bar.value = l.speed.ratio;
      bar.spread = spread_of(l);
      bar.text = text_at(l.row, "group") == "baseline"
                     ? fmt::format("{} ms", figure_at(l.row, "p50_ms"))
                     : fmt::format("{}, {} ms", str(l.speed), figure_at(l.row, "p50_ms"));
      if (l.own_roofline > 0) bar.marker = l.own_roofline;
    }
    chart.bars.push_back(std::move(bar));
  }
  return chart;
}

BarChart ablation_memory_chart(std::span<const AblationLine> lines) {
  BarChart chart;
  chart.title = "Peak memory of a step: " + study_name(lines);
  chart.series = {"baseline", "by itself", "added up"};
  chart.marker = "predicted";
  double most = 0;
  for (const AblationLine& l : lines) most = std::max(most, l.peak_mib());
  const double unit = most >= 4096 ? 1024 : 1;  // of MiB
  chart.axis = unit > 1 ? "GiB" : "MiB";
  for (const AblationLine& l : lines) {
    if (!l.in_main_table() || text_at(l.row, "group") == "again") continue;
    Bar bar{l.label, std::nullopt, l.gate_text(), std::nullopt, series_of(l)};
    if (l.timed()) {
      bar.value = l.peak_mib() / unit;
      bar.text = fmt::format("{:.2f}{}", *bar.value, l.memory > 0 ? ", " + times(l.memory) : "");
      if (const auto p = number_at(l.row, "predicted_peak_bytes")) bar.marker = *p / 0x1p20 / unit;
    }
    chart.bars.push_back(std::move(bar));
  }
  return chart;
}

}  // namespace kiln
