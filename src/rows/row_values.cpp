#include "rows/row_values.h"

#include <fmt/format.h>

#include <cmath>

#include "base/plain_number.h"
#include "rows/row_status.h"

namespace kiln {
namespace {

std::string text_of(const Json& value) {
  if (value.is_null()) return {};
  if (value.is_string()) return value.text();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (!value.is_object()) return value.dump();
  std::string text;  // sizes by name
  for (const auto& [name, size] : value.items())
    text +=
        fmt::format("{}{}={}", text.empty() ? "" : ",", name, size.is_string() ? size.text() : size.dump());
  return text;
}

}  // namespace

std::string figure(double x) { return plain(x, std::abs(x) >= 10 ? 4 : 3); }

std::string times(double ratio) { return ratio > 0 ? fmt::format("{:.2f}x", ratio) : "-"; }

std::optional<double> number_at(const Json& row, std::string_view key) {
  const Json* found = row.find(key);
  if (found == nullptr || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::optional<double> number_at(const Json& row, std::string_view key, std::string_view was) {
  const auto now = number_at(row, key);
  return now ? now : number_at(row, was);
}

std::optional<double> own_roofline_of(const Json& row) {
  return number_at(row, "own_roofline_ms", "predicted_ms");
}

std::optional<double> roofline_of(const Json& row) { return number_at(row, "roofline_ms", "floor_ms"); }

double ratio_of(const std::optional<double>& a, const std::optional<double>& b) {
  return a && b && *b > 0 ? *a / *b : 0;
}

std::string figure_at(const Json& row, std::string_view key) {
  const auto x = number_at(row, key);
  return x ? figure(*x) : "-";
}

std::string mebibytes_at(const Json& row, std::string_view key) {
  const auto x = number_at(row, key);
  return x ? fmt::format("{:.2f}", *x / 0x1p20) : "-";
}

double ratio_at(const Json& a, const Json& b, std::string_view key) {
  const auto x = number_at(a, key), y = number_at(b, key);
  return x && y && *y > 0 ? *x / *y : 0;
}

double ratio_of(const Json& row, std::string_view part, std::string_view whole) {
  const auto x = number_at(row, part), y = number_at(row, whole);
  return x && y && *y > 0 ? *x / *y : 0;
}

std::string in_place_of_times(const Json& row) {
  const RowStatus status = status_of(row);
  if (status == RowStatus::ok) return "-";
  return status == RowStatus::oom ? "OOM" : std::string(name_of(status));
}

std::string text_at(const Json& row, std::string_view key) {
  const Json* found = row.find(key);
  return found == nullptr ? std::string() : text_of(*found);
}

std::vector<double> samples_of(const Json& row, std::string_view key) {
  std::vector<double> samples;
  const Json* found = row.find(key);
  if (found == nullptr || !found->is_array()) return samples;
  for (const Json& s : *found)
    if (s.is_number()) samples.push_back(s.get<double>());
  return samples;
}

}  // namespace kiln
