#include "studies/report/chapters/row_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/plain_number.h"

namespace kiln {

std::vector<Json> rows_of(Rows rows, std::string_view command) {
  return rows_where(rows, [&](const Json& r) { return text_at(r, "command") == command; });
}

std::vector<Json> rows_where(Rows rows, const std::function<bool(const Json&)>& keep) {
  std::vector<Json> kept;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(kept), keep);
  return kept;
}

std::vector<Json> timed_rows(Rows rows) {
  return rows_where(rows, [](const Json& r) { return counts(r) && number_at(r, "p50_ms"); });
}

bool word_is(const Json& row, std::string_view key, std::string_view text) {
  return text_at(row, key) == text;
}

std::vector<std::vector<Json>> groups_by(Rows rows, std::initializer_list<std::string_view> keys) {
  std::vector<std::pair<std::string, std::vector<Json>>> groups;
  for (const Json& row : rows) {
    std::string name;
    for (const std::string_view key : keys) name += text_at(row, key) + "\n";
    const auto at =
        std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == name; });
    (at == groups.end() ? groups.emplace_back(name, std::vector<Json>()) : *at).second.push_back(row);
  }
  std::vector<std::vector<Json>> all;
  for (auto& [name, group] : groups) all.push_back(std::move(group));
  return all;
}

namespace {

const Json* extreme(Rows rows, std::string_view key, double sign) {
  const Json* found = nullptr;
  for (const Json& row : rows) {
    const auto value = number_at(row, key);
    if (!value) continue;
    if (found == nullptr || sign * *value > sign * *number_at(*found, key)) found = &row;
  }
  return found;
}

}  // namespace

const Json* greatest(Rows rows, std::string_view key) { return extreme(rows, key, 1); }
const Json* least(Rows rows, std::string_view key) { return extreme(rows, key, -1); }

std::vector<std::string> values_of(Rows rows, std::string_view key) {
  std::vector<std::string> values;
  for (const Json& row : rows) {
    std::string value = text_at(row, key);
    if (!value.empty() && std::find(values.begin(), values.end(), value) == values.end())
      values.push_back(std::move(value));
  }
  return values;
}

std::string listed(const std::vector<std::string>& words) {
  if (words.size() < 2) return words.empty() ? std::string() : words.front();
  const std::vector<std::string> first(words.begin(), words.end() - 1);
  return fmt::format("{} and {}", fmt::join(first, ", "), words.back());
}

namespace {

template <class Text>
std::string range_text(std::vector<double> values, Text text) {
  std::erase_if(values, [](double v) { return !(v > 0); });
  if (values.empty()) return {};
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const std::string a = text(*low), b = text(*high);
  return a == b ? a : fmt::format("{} to {}", a, b);
}

}  // namespace

std::string range_of_times(std::vector<double> ratios) { return range_text(std::move(ratios), times); }
std::string range_of_shares(std::vector<double> shares) {
  return range_text(std::move(shares), percent_text);
}

std::string percent_text(double share) {
  const double percent = 100 * share;
  return fmt::format("{:.{}f} %", percent, percent < 9.95 && percent > -9.95 ? 1 : 0);
}

std::string bytes_text(double bytes) {
  if (bytes >= 0x1p30) return fmt::format("{} GiB", plain(bytes / 0x1p30));
  if (bytes >= 0x1p20) return fmt::format("{} MiB", plain(bytes / 0x1p20));
  return fmt::format("{} KiB", plain(bytes / 0x1p10));
}

std::string ms_text(double ms) { return figure(ms) + " ms"; }

std::string name_among(Rows rows, const Json& row, std::initializer_list<std::string_view> keys) {
  std::vector<std::string> words;
  for (const std::string_view key : keys) {
    const std::string value = text_at(row, key);
    if (value.empty() || (rows.size() > 1 && values_of(rows, key).size() < 2)) continue;
    const bool speaks = key == "size" || key == "dtype" || key == "preset" || key == "mode" ||
                        key == "variant" || key == "phase" || key == "form" || key == "pass";
    words.push_back(speaks ? value : fmt::format("{} {}", key, value));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string capitalized(std::string text) {
  if (!text.empty() && text.front() >= 'a' && text.front() <= 'z') text.front() -= 'a' - 'A';
  return text;
}

std::string plural(std::size_t n, std::string_view word) {
  return fmt::format("{} {}{}", n, word, n == 1 ? "" : word.ends_with('s') ? "es" : "s");
}

PageTable facts_table(std::string heading, Rows rows, std::initializer_list<ColumnForm> columns) {
  const std::vector<ColumnForm> forms(columns);
  RowTable table = row_table(forms, rows, {.wide = true});
  return {std::move(heading), std::move(table.lines), std::max<std::size_t>(table.left, 1), false, {}};
}

namespace {

std::string key_of(const Json& row, const std::vector<std::string>& keys) {
  std::vector<std::string> words;
  for (const std::string& key : keys)
    if (std::string word = text_at(row, key); !word.empty()) words.push_back(std::move(word));
  return fmt::format("{}", fmt::join(words, " "));
}

ChartLine line_through(Rows rows, const CurveSpec& spec, const std::string& y, LineStyle style) {
  ChartLine line;
  line.style = style;
  for (const Json& row : rows) {
    const auto at = number_at(row, spec.x), value = number_at(row, y);
    if (at && value) line.points.push_back({*at, *value * spec.y_scale});
  }
  std::sort(line.points.begin(), line.points.end(),
            [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
  return line;
}

}  // namespace

std::vector<AnswerChart> curve(Rows rows, const CurveSpec& spec) {
  LineChart chart{.title = spec.title,
                  .below_title = spec.below,
                  .x_label = spec.x_label,
                  .y_label = spec.y_label,
                  .x_ticks = {},
                  .lines = {},
                  .style_names = {"measured", "predicted", spec.floor_name}};
  std::vector<std::string> names;
  for (const Json& row : rows)
    if (const std::string name = key_of(row, spec.by);
        std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  constexpr std::size_t kMostLines = 10;  // more could not be told apart
  std::set<double> xs;
  bool any = false;
  for (std::size_t i = 0; i < std::min(names.size(), kMostLines); ++i) {
    const std::vector<Json> own =
        rows_where(rows, [&](const Json& r) { return key_of(r, spec.by) == names[i]; });
    ChartLine line = line_through(own, spec, spec.y, LineStyle::measured);
    line.name = names[i];
    line.colour = i;
    for (const ChartPoint& p : line.points) xs.insert(p.x);
    any = any || line.points.size() > 1;
    chart.lines.push_back(std::move(line));
    if (spec.floor.empty()) continue;
    ChartLine floor = line_through(own, spec, spec.floor, LineStyle::floor);
    floor.colour = i;
    if (!floor.points.empty()) chart.lines.push_back(std::move(floor));
  }
  if (!any) return {};
  for (const double x : xs) chart.x_ticks.push_back({x, plain(x, 6)});
  return {{{spec.name, line_chart_svg(chart)}, spec.title}};
}

}  // namespace kiln
