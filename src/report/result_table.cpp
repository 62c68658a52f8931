#include "report/result_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace kiln {
namespace {

using nlohmann::json;

// Keys that say what was measured, in the order they are shown.
constexpr std::array kWords = {"op",       "size",      "mode",   "dtype", "batch",   "heads", "seq",
                               "d",        "causal",    "packed", "ctx",   "vocab",   "shape", "preset",
                               "variants", "recompute", "graph",  "tuned", "variant", "pass",  "warmups"};

enum class As { plain, mebibytes, percent, times, word };

struct Column {
  const char* title;
  const char* key;
  As as = As::plain;
};

constexpr std::array kFigures = {
    Column{"ms mean", "mean_ms"},
    Column{"std", "std_ms"},
    Column{"p50", "p50_ms"},
    Column{"p95", "p95_ms"},
    Column{"min", "min_ms"},
    Column{"forward", "forward_ms"},
    Column{"backward", "backward_ms"},
    Column{"optimizer", "optimizer_ms"},
    Column{"predicted ms", "predicted_ms"},
    Column{"floor ms", "floor_ms"},
    Column{"of roofline", "of_roofline", As::percent},
    Column{"tokens/s", "tokens_per_s"},
    Column{"TFLOP/s", "tflops"},
    Column{"GB/s", "gb_per_s"},
    Column{"GFLOP/s", "gflop_per_s"},
    Column{"vs naive", "speedup_over_naive", As::times},
    Column{"peak MiB", "peak_bytes", As::mebibytes},
    Column{"predicted MiB", "predicted_peak_bytes", As::mebibytes},
    Column{"verdict", "verdict", As::word},
};

std::string shown(const json& row, const Column& c) {
  if (c.as == As::word) return word_at(row, c.key).empty() ? "-" : word_at(row, c.key);
  const std::optional<double> x = number_at(row, c.key);
  if (!x) return "-";
  switch (c.as) {
    case As::mebibytes:
      return figure(*x / 0x1p20);
    case As::percent:
      return fmt::format("{:.0f} %", 100 * *x);
    case As::times:
      return fmt::format("{:.2f}x", *x);
    default:
      return figure(*x);
  }
}

std::string axis_value(const json& row, const std::string& axis) {
  const auto grid = row.find("grid");
  return grid != row.end() && grid->is_object() ? word_at(*grid, axis.c_str()) : "";
}

}  // namespace

std::string figure(double x) {
  return x >= 1000 ? fmt::format("{:.0f}", x) : x >= 10 ? fmt::format("{:.4g}", x) : fmt::format("{:.3g}", x);
}

std::optional<double> number_at(const json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::string times(double ratio) { return ratio > 0 ? fmt::format("{:.2f}x", ratio) : "-"; }

std::string figure_at(const json& row, const char* key) {
  const auto x = number_at(row, key);
  return x ? figure(*x) : "-";
}

std::string mebibytes_at(const json& row, const char* key) {
  const auto x = number_at(row, key);
  return x ? fmt::format("{:.2f}", *x / 0x1p20) : "-";
}

double ratio_at(const json& a, const json& b, const char* key) {
  const auto x = number_at(a, key), y = number_at(b, key);
  return x && y && *y > 0 ? *x / *y : 0;
}

std::string in_place_of_times(const json& row) {
  const std::string gate = word_at(row, "gate");
  return gate == "no memory" ? "OOM" : gate.empty() ? "-" : gate;
}

std::string word_at(const json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || found->is_null()) return {};
  if (found->is_string()) return found->get<std::string>();
  if (found->is_boolean()) return found->get<bool>() ? "yes" : "no";
  if (!found->is_object()) return found->dump();
  std::string text;  // sizes by name
  for (const auto& [name, value] : found->items())
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", name,
                        value.is_string() ? value.get<std::string>() : value.dump());
  return text;
}

std::vector<double> samples_of(const json& row, const char* key) {
  std::vector<double> samples;
  const auto found = row.find(key);
  if (found == row.end() || !found->is_array()) return samples;
  for (const json& s : *found) {
    if (s.is_number()) samples.push_back(s.get<double>());
  }
  return samples;
}

ResultTable result_table(std::span<const json> rows, const std::vector<std::string>& axes) {
  // A word that follows from the axes alone (a size's vocabulary) would say nothing twice.
  auto cell_of = [&](const json& row) {
    std::string cell;
    for (const std::string& axis : axes) cell += axis_value(row, axis) + "\n";
    return cell;
  };
  std::vector<const char*> words;
  for (const char* key : kWords) {
    if (std::find(axes.begin(), axes.end(), key) != axes.end()) continue;
    std::map<std::string, std::set<std::string>> values;  // by cell
    for (const json& row : rows) {
      if (const std::string value = word_at(row, key); !value.empty()) values[cell_of(row)].insert(value);
    }
    if (std::any_of(values.begin(), values.end(), [](const auto& v) { return v.second.size() > 1; }))
      words.push_back(key);
  }
  std::vector<Column> figures;
  for (const Column& c : kFigures) {
    if (std::any_of(rows.begin(), rows.end(), [&](const json& row) { return shown(row, c) != "-"; }))
      figures.push_back(c);
  }
  if (figures.empty()) figures.push_back(kFigures.front());  // no row was timed: the column says why
  ResultTable result;
  result.left = axes.size() + words.size();
  std::vector<std::string> heading = axes;
  heading.insert(heading.end(), words.begin(), words.end());
  for (const Column& c : figures) heading.emplace_back(c.title);
  result.table.push_back(std::move(heading));
  for (const json& row : rows) {
    std::vector<std::string> line;
    line.reserve(result.left + figures.size());
    for (const std::string& axis : axes) line.push_back(axis_value(row, axis));
    for (const char* key : words) line.push_back(word_at(row, key));
    for (const Column& c : figures) line.push_back(shown(row, c));
    if (line[result.left] == "-") line[result.left] = in_place_of_times(row);
    result.table.push_back(std::move(line));
  }
  return result;
}

}  // namespace kiln
