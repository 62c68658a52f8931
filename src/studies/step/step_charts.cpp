#include "studies/step/step_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>

#include "base/json.h"
#include "base/plain_number.h"
#include "report/charts/grouped_bars.h"
#include "report/charts/line_chart.h"
#include "rows/row_values.h"
#include "studies/step/step_studies.h"

namespace kiln {
namespace {

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// Of "mode=full dtype=fp32" what all have, to be said once; and of each what it has alone, without the keys.
struct Names {
  std::string common;
  std::vector<std::string> own;
};
Names split_names(const std::vector<std::string>& held) {
  Names names;
  const auto in_all = [&](const std::string& word) {
    return std::all_of(held.begin(), held.end(), [&](const std::string& text) {
      const std::vector<std::string> words = split_words(text);
      return std::find(words.begin(), words.end(), word) != words.end();
    });
  };
  for (const std::string& text : held) {
    std::string own;
    for (const std::string& word : split_words(text)) {
      if (!in_all(word)) own += (own.empty() ? "" : ", ") + word.substr(word.find('=') + 1);
    }
    names.own.push_back(own);
  }
  for (const std::string& word : held.empty() ? std::vector<std::string>() : split_words(held.front())) {
    if (in_all(word)) names.common += (names.common.empty() ? "" : ", ") + word;
  }
  std::replace(names.common.begin(), names.common.end(), '=', ' ');
  return names;
}

std::vector<ChartPoint> points_of(const std::vector<double>& x, const std::vector<double>& y) {
  std::vector<ChartPoint> points;
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) points.push_back({x[i], y[i]});
  std::sort(points.begin(), points.end(), [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
  return points;
}

std::string tick_name(double x, bool params) {
  if (!params) return plain(x, 6);
  return x >= 1e9 ? fmt::format("{} B", plain(x / 1e9, 3)) : fmt::format("{} M", plain(x / 1e6, 3));
}

std::optional<NamedChart> time_over(const std::vector<ScalingLaw>& scaling_fits, const char* axis,
                                    const char* label) {
  std::vector<const ScalingLaw*> these;
  std::vector<std::string> held;
  for (const ScalingLaw& law : scaling_fits) {
    if (law.over != axis) continue;
    these.push_back(&law);
    held.push_back(law.held);
  }
  if (these.empty()) return std::nullopt;
  const Names names = split_names(held);
  LineChart chart{.title = fmt::format("Time of a step over {}", label),
                  .below_title = names.common,
                  .x_label = label,
                  .y_label = "ms, median",
                  .x_ticks = {},
                  .lines = {},
                  .style_names = {"measured", "own roofline", "roofline"}};
  std::set<double> at;
  for (std::size_t i = 0; i < these.size(); ++i) {
    const ScalingLaw& law = *these[i];
    at.insert(law.at.begin(), law.at.end());
    chart.lines.push_back(
        {fmt::format("{}{}x^{:.2f}", names.own[i], names.own[i].empty() ? "" : ": ", law.measured.exponent),
         i, LineStyle::measured, points_of(law.at, law.measured_ms)});
    chart.lines.push_back({"", i, LineStyle::predicted, points_of(law.at, law.own_roofline_ms)});
    chart.lines.push_back({"", i, LineStyle::floor, points_of(law.at, law.roofline_ms)});
  }
  for (const double x : at) chart.x_ticks.push_back({x, tick_name(x, std::string_view(axis) == "params")});
  return NamedChart{fmt::format("time-over-{}", axis), line_chart_svg(chart)};
}

double ratio(const RowPair& p, const char* key) {
  const auto a = number_at(p.baseline, key), b = number_at(p.judged, key);
  return a && b && *b > 0 ? *a / *b : 0;
}

std::optional<NamedChart> speedups(const std::vector<RowPair>& pairs, const char* over) {
  std::vector<const RowPair*> these;
  std::vector<std::string> held;
  for (const RowPair& p : pairs) {
    if (p.over != over) continue;
    these.push_back(&p);
    std::string words;
    for (const char* key : {"size", "mode", "dtype", "batch", "ctx", "preset"}) {
      if (p.over != key) words += fmt::format("{}={} ", key, text_at(p.baseline, key));
    }
    held.push_back(words + fmt::format("from={} to={}", text_at(p.baseline, over), text_at(p.judged, over)));
  }
  if (these.empty()) return std::nullopt;
  const Names names = split_names(held);
  GroupedBars chart{.title = fmt::format("Speed-up of one {} over the other", over),
                    .below_title = names.common,
                    .y_label = "times faster",
                    .unit = "x",
                    .reference = 1,
                    .marker = "own rooflines",
                    .series = {"forward", "backward", "step"},
                    .groups = {}};
  for (std::size_t i = 0; i < these.size(); ++i) {
    const RowPair& p = *these[i];
    chart.groups.push_back(
        {p.achieved.significant() ? names.own[i] : fmt::format("{} ({})", names.own[i], str(p.achieved)),
         {{ratio(p, "forward_ms"), 0}, {ratio(p, "backward_ms"), 0}, {p.achieved.ratio, p.own_roofline}}});
  }
  return NamedChart{fmt::format("speedup-{}", over), grouped_bars_svg(chart)};
}

}  // namespace

std::vector<NamedChart> step_charts(std::span<const Json> rows) {
  std::vector<NamedChart> charts;
  const auto keep = [&](std::optional<NamedChart> p) {
    if (p) charts.push_back(std::move(*p));
  };
  const std::vector<ScalingLaw> scaling_fits = step_scaling(rows);
  keep(time_over(scaling_fits, "ctx", "sequence length"));
  keep(time_over(scaling_fits, "params", "parameters"));
  keep(time_over(scaling_fits, "batch", "batch size"));
  const std::vector<RowPair> pairs = step_pairs(rows);
  keep(speedups(pairs, "dtype"));
  keep(speedups(pairs, "preset"));
  return charts;
}

}  // namespace kiln
