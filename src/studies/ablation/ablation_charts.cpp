#include "studies/ablation/ablation_charts.h"

#include <fmt/format.h>

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

}  // namespace

BarChart speedup_chart(std::span<const AblationLine> lines) {
  BarChart chart;
  chart.title = "Speed-up over the baseline: " + study_name(lines);
  chart.series = {"baseline", "by itself", "added up"};
  chart.marker = "own roofline of operations and bytes";
  chart.axis = "times as fast as the baseline";
  chart.reference = 1;
  for (const AblationLine& l : lines) {
    Bar bar{l.label, std::nullopt, l.gate_text(), std::nullopt, series_of(l)};
    if (l.timed() && l.speed.ratio > 0) {
      bar.value = l.speed.ratio;
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
  chart.axis = "MiB";
  for (const AblationLine& l : lines) {
    if (text_at(l.row, "group") == "again") continue;
    Bar bar{l.label, std::nullopt, l.gate_text(), std::nullopt, series_of(l)};
    if (l.timed()) {
      bar.value = l.peak_mib();
      bar.text = fmt::format("{:.2f}{}", *bar.value, l.memory > 0 ? ", " + times(l.memory) : "");
      if (const auto p = number_at(l.row, "predicted_peak_bytes")) bar.marker = *p / 0x1p20;
    }
    chart.bars.push_back(std::move(bar));
  }
  return chart;
}

}  // namespace kiln
