#include "studies/report/stored_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "report/result_table.h"

namespace kiln {
namespace {

using nlohmann::json;

constexpr std::array kStepKeys = {"size", "mode", "dtype", "batch", "ctx", "preset", "recompute", "graph"};
constexpr std::array kMemoryKeys = {"size", "phase", "dtype", "batch", "ctx", "preset", "recompute"};

// All that decides a figure, beside machine and build.
constexpr std::array kDecides = {"command", "size",  "mode",        "phase",      "dtype", "batch",
                                 "ctx",     "vocab", "preset",      "variants",   "graph", "recompute",
                                 "clip",    "tuned", "micro_steps", "variant_set"};

bool same_in_all(std::span<const json> rows, const char* key) {
  return std::all_of(rows.begin(), rows.end(),
                     [&](const json& row) { return word_at(row, key) == word_at(rows.front(), key); });
}

using Keys = std::vector<const char*>;

// `always`, and all else in which rows differ.
Keys keys_of(std::span<const json> rows, std::span<const char* const> always) {
  Keys keys(always.begin(), always.end());
  const auto held = [&](std::string_view key) {
    return std::any_of(keys.begin(), keys.end(), [&](const char* k) { return key == k; });
  };
  for (const char* key : kDecides) {
    // variant_set sums up what has columns of its own; it counts where those do not tell rows apart.
    if (held(key) || std::string_view(key) == "variant_set") continue;
    if (!same_in_all(rows, key)) keys.push_back(key);
  }
  std::set<std::string> seen;
  for (const json& row : rows) {
    std::string words;
    for (const char* key : keys) words += word_at(row, key) + "\n";
    if (!seen.insert(words).second && !held("variant_set")) keys.push_back("variant_set");
  }
  return keys;
}

std::vector<std::string> words_of(const json& row, const Keys& keys) {
  std::vector<std::string> cells;
  cells.reserve(keys.size());
  for (const char* key : keys) cells.push_back(word_at(row, key).empty() ? "-" : word_at(row, key));
  return cells;
}

ResultTable headed(const Keys& keys, std::initializer_list<const char*> figures) {
  ResultTable result;
  result.left = keys.size();
  result.table.emplace_back(keys.begin(), keys.end());
  result.table.front().insert(result.table.front().end(), figures.begin(), figures.end());
  return result;
}

// "ctx 512", "bf16": a number alone says nothing.
std::string named(const json& row, const char* key) {
  const std::string_view name = key;
  const std::string word = word_at(row, key);
  const bool speaks =
      name == "size" || name == "mode" || name == "phase" || name == "dtype" || name == "preset";
  return speaks ? word : fmt::format("{} {}", name, word);
}

// What all rows share is in the title, what tells them apart is a bar's label.
struct Names {
  std::string shared;
  std::vector<std::string> rows;
};

Names names_of(std::span<const json> rows, const Keys& keys) {
  Names names{{}, std::vector<std::string>(rows.size())};
  const auto add = [](std::string& text, const std::string& word) {
    text += (text.empty() ? "" : " ") + word;
  };
  for (const char* key : keys) {
    if (same_in_all(rows, key) && rows.size() > 1) {
      if (!word_at(rows.front(), key).empty()) add(names.shared, named(rows.front(), key));
      continue;
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!word_at(rows[i], key).empty()) add(names.rows[i], named(rows[i], key));
    }
  }
  return names;
}

std::string titled(const char* title, const std::string& shared) {
  return shared.empty() ? title : fmt::format("{}: {}", title, shared);
}

}  // namespace

std::vector<json> latest_rows(std::span<const json> rows) {
  std::vector<json> latest;
  std::map<std::string, std::size_t> places;
  for (const json& row : rows) {
    std::string key;
    for (const char* k : kDecides) key += word_at(row, k) + "\n";
    const auto [place, fresh] = places.emplace(key, latest.size());
    if (fresh)
      latest.push_back(row);
    else
      latest[place->second] = row;
  }
  return latest;
}

ResultTable step_rows_table(std::span<const json> rows) {
  const Keys keys = keys_of(rows, kStepKeys);
  ResultTable result =
      headed(keys, {"ms p50", "95 % of mean", "verdict", "forward", "backward", "optimizer", "predicted ms",
                    "floor ms", "tokens/s", "TFLOP/s", "peak MiB", "predicted MiB"});
  for (const json& row : rows) {
    std::vector<std::string> line = words_of(row, keys);
    const bool timed = number_at(row, "p50_ms").has_value();
    line.push_back(timed ? figure_at(row, "p50_ms") : in_place_of_times(row));
    line.push_back(
        timed ? fmt::format("{} to {}", figure_at(row, "ci95_low_ms"), figure_at(row, "ci95_high_ms")) : "-");
    line.push_back(timed ? word_at(row, "verdict") : "-");
    for (const char* key :
         {"forward_ms", "backward_ms", "optimizer_ms", "predicted_ms", "floor_ms", "tokens_per_s", "tflops"})
      line.push_back(figure_at(row, key));
    line.push_back(mebibytes_at(row, "peak_bytes"));
    line.push_back(mebibytes_at(row, "predicted_peak_bytes"));
    result.table.push_back(std::move(line));
  }
  return result;
}

ResultTable memory_rows_table(std::span<const json> rows) {
  const Keys keys = keys_of(rows, kMemoryKeys);
  ResultTable result = headed(keys, {"measured MiB", "predicted", "floor", "of floor"});
  for (const json& row : rows) {
    std::vector<std::string> line = words_of(row, keys);
    const auto predicted = number_at(row, "predicted_peak_bytes"), floor = number_at(row, "floor_bytes");
    line.push_back(mebibytes_at(row, "measured_peak_bytes"));
    line.push_back(mebibytes_at(row, "predicted_peak_bytes"));
    line.push_back(mebibytes_at(row, "floor_bytes"));
    line.push_back(times(predicted && floor && *floor > 0 ? *predicted / *floor : 0));
    result.table.push_back(std::move(line));
  }
  return result;
}

BarChart step_rows_chart(std::span<const json> rows) {
  BarChart chart;
  const Names names = names_of(rows, keys_of(rows, kStepKeys));
  chart.title = titled("Time of a step", names.shared);
  chart.marker = "predicted from operations and bytes";
  chart.axis = "ms, median";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto ms = number_at(rows[i], "p50_ms");
    chart.bars.push_back({names.rows[i], ms, ms ? figure(*ms) : in_place_of_times(rows[i]),
                          ms ? number_at(rows[i], "predicted_ms") : std::nullopt, 1});
  }
  return chart;
}

BarChart memory_rows_chart(std::span<const json> rows) {
  BarChart chart;
  const Names names = names_of(rows, keys_of(rows, kMemoryKeys));
  chart.title = titled("Peak memory of a step", names.shared);
  chart.series = {"predicted only", "measured"};
  chart.marker = "predicted";
  chart.axis = "MiB";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto measured = number_at(rows[i], "measured_peak_bytes"),
               predicted = number_at(rows[i], "predicted_peak_bytes");
    const std::optional<double> bytes = measured ? measured : predicted;
    Bar bar{names.rows[i], std::nullopt, "-", std::nullopt, measured ? 1 : 0};
    if (bytes) {
      bar.value = *bytes / 0x1p20;
      bar.text = fmt::format("{:.2f}", *bar.value);
    }
    if (predicted) bar.marker = *predicted / 0x1p20;
    chart.bars.push_back(std::move(bar));
  }
  return chart;
}

}  // namespace kiln
