#include "studies/report/stored_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/json.h"
#include "rows/row_values.h"
#include "rows/schema.h"
#include "studies/step/render.h"

namespace kiln {
namespace {

constexpr std::array kStepKeys = {"size", "mode", "dtype", "batch", "ctx", "preset", "recompute", "graph"};
constexpr std::array kMemoryKeys = {"size", "phase", "dtype", "batch", "ctx", "preset", "recompute"};

// All that determines a figure, besides machine and build.
constexpr std::array kDecides = {"command",
                                 "size",
                                 "mode",
                                 "phase",
                                 "dtype",
                                 "batch",
                                 "ctx",
                                 "vocab",
                                 "preset",
                                 "variants",
                                 "graph",
                                 "recompute",
                                 "clip",
                                 "tuned",
                                 "micro_steps",
                                 "variant_set",
                                 "op",
                                 "variant",
                                 "backward_variant",
                                 "pass",
                                 "heads",
                                 "seq",
                                 "d",
                                 "causal",
                                 "packed",
                                 "tiles",
                                 "compile",
                                 "shape",
                                 "ranks",
                                 "form",
                                 "strategy",
                                 "stage",
                                 "bucket_mb",
                                 "prefetch",
                                 "transport",
                                 "algorithm",
                                 "link_model",
                                 "wire",
                                 "layout",
                                 "count",
                                 "value"};

bool same_in_all(std::span<const Json> rows, const char* key) {
  return std::all_of(rows.begin(), rows.end(),
                     [&](const Json& row) { return text_at(row, key) == text_at(rows.front(), key); });
}

using Keys = std::vector<const char*>;

// `always`, and all else in which rows differ.
Keys keys_of(std::span<const Json> rows, std::span<const char* const> always) {
  Keys keys(always.begin(), always.end());
  const auto held = [&](std::string_view key) {
    return std::any_of(keys.begin(), keys.end(), [&](const char* k) { return key == k; });
  };
  for (const char* key : kDecides) {
    // variant_set sums up what has columns of its own; it counts where those do not distinguish rows.
    if (held(key) || std::string_view(key) == "variant_set") continue;
    if (!same_in_all(rows, key)) keys.push_back(key);
  }
  std::set<std::string> seen;
  for (const Json& row : rows) {
    std::string words;
    for (const char* key : keys) words += text_at(row, key) + "\n";
    if (!seen.insert(words).second && !held("variant_set")) keys.push_back("variant_set");
  }
  return keys;
}

// "ctx 512", "bf16": a number alone says nothing.
std::string named(const Json& row, const char* key) {
  const std::string_view name = key;
  const std::string word = text_at(row, key);
  const bool speaks =
      name == "size" || name == "mode" || name == "phase" || name == "dtype" || name == "preset";
  return speaks ? word : fmt::format("{} {}", name, word);
}

// What all rows share is in the title, what differs is a bar's label.
struct Names {
  std::string shared;
  std::vector<std::string> rows;
};

Names names_of(std::span<const Json> rows, const Keys& keys) {
  Names names{{}, std::vector<std::string>(rows.size())};
  const auto add = [](std::string& text, const std::string& word) {
    text += (text.empty() ? "" : " ") + word;
  };
  for (const char* key : keys) {
    if (same_in_all(rows, key) && rows.size() > 1) {
      if (!text_at(rows.front(), key).empty()) add(names.shared, named(rows.front(), key));
      continue;
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!text_at(rows[i], key).empty()) add(names.rows[i], named(rows[i], key));
    }
  }
  return names;
}

std::string titled(const char* title, const std::string& shared) {
  return shared.empty() ? title : fmt::format("{}: {}", title, shared);
}

}  // namespace

std::string machine_of(const Json& row) {
  const auto host = row.find("host");
  const std::string name =
      host != nullptr && host->is_object() ? text_at(*host, "device_name") : std::string();
  const std::string device = text_at(row, "device");
  return name.empty() ? device : fmt::format("{} ({})", device, name);
}

std::string place_of(const Json& row) {
  const auto host = row.find("host");
  const std::string n = host != nullptr && host->is_object() ? text_at(*host, "threads") : std::string();
  return fmt::format("{}{}, build {}", machine_of(row),
                     n.empty() ? "" : fmt::format(", {} thread{}", n, n == "1" ? "" : "s"),
                     text_at(row, "build_id"));
}

std::vector<Json> latest_rows(std::span<const Json> rows) {
  std::vector<Json> latest;
  std::map<std::string, std::size_t> places;
  for (const Json& row : rows) {
    std::string key;
    for (const char* k : kDecides) key += text_at(row, k) + "\n";
    if (text_at(row, "command") == "bench warmup") key += text_at(row, "warmups");  // what it is about
    const auto [place, fresh] = places.emplace(key, latest.size());
    if (fresh)
      latest.push_back(row);
    else
      latest[place->second] = row;
  }
  return latest;
}

namespace {

// A command's own columns, and of the stored values those that distinguish these rows.
RowTable rows_table(std::span<const Json> rows, std::span<const ColumnForm> columns, const Keys& keys) {
  std::vector<ColumnForm> shown;
  const auto has = [](const auto& list, std::string_view key) {
    return std::any_of(list.begin(), list.end(), [&](const ColumnForm& c) { return c.key == key; });
  };
  for (ColumnForm c : columns) {
    if (c.key == "variant_set" || c.key == "gate") continue;  // of what is here all passed
    const bool decides = std::find(kDecides.begin(), kDecides.end(), c.key) != kDecides.end();
    if (decides && c.where == Where::stored) c.where = Where::differs;
    if (decides && c.title.empty()) c.title = c.key;
    shown.push_back(c);
  }
  for (const char* key : keys)
    if (!has(shown, key)) shown.push_back({key, key, Unit::text, Where::differs});
  return row_table(shown, rows);
}

std::string of_floor(const Json& row) {
  const auto predicted = number_at(row, "predicted_peak_bytes"), floor = number_at(row, "floor_bytes");
  return predicted && floor && *floor > 0 ? times(*predicted / *floor) : "";
}

}  // namespace

RowTable step_rows_table(std::span<const Json> rows) {
  return rows_table(rows, step_columns(), keys_of(rows, kStepKeys));
}

RowTable memory_rows_table(std::span<const Json> rows) {
  static constexpr ColumnForm kColumns[] = {
      {"size", "size", Unit::text, Where::table},
      {"phase", "phase", Unit::text, Where::table},
      {"dtype", "precision", Unit::text, Where::table},
      {"batch", "batch", Unit::text, Where::table},
      {"ctx", "ctx", Unit::text, Where::table},
      {"preset", "preset", Unit::text, Where::table},
      {"recompute", "recompute", Unit::text, Where::table},
      {"measured_peak_bytes", "measured MiB", Unit::bytes, Where::table},
      {"predicted_peak_bytes", "predicted MiB", Unit::bytes, Where::table},
      {"floor_bytes", "floor MiB", Unit::bytes, Where::table},
      {"", "of floor", Unit::times, Where::table, {}, of_floor},
  };
  return rows_table(rows, kColumns, keys_of(rows, kMemoryKeys));
}

BarChart step_rows_chart(std::span<const Json> rows) {
  BarChart chart;
  const Names names = names_of(rows, keys_of(rows, kStepKeys));
  chart.title = titled("Time of a step", names.shared);
  chart.marker = "own roofline of operations and bytes";
  chart.axis = "ms, median";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto ms = number_at(rows[i], "p50_ms");
    chart.bars.push_back({names.rows[i], ms, ms ? figure(*ms) : in_place_of_times(rows[i]),
                          ms ? own_roofline_of(rows[i]) : std::nullopt, 1});
  }
  return chart;
}

BarChart memory_rows_chart(std::span<const Json> rows) {
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
