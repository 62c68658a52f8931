#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "studies/format.h"
#include "kiln/precision_pages.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

std::string brief(double x) { return std::isfinite(x) ? fmt::format("{:.1e}", x) : "inf"; }

ordered_json number(double x) { return std::isfinite(x) ? ordered_json(x) : ordered_json(nullptr); }

constexpr double kUseless = 0.1;  // an error

std::string verdict(const SumTable& table) {
  std::string lost;
  for (const SumRow& row : table.rows) {
    if (row.error < kUseless) continue;
    lost += fmt::format("{}{} of {} in {}", lost.empty() ? "" : ", ", row.method, row.quantity,
                        name_of(row.dtype));
  }
  return lost.empty() ? "every row is within a tenth\n" : fmt::format("off by a tenth or more: {}\n", lost);
}

// Lines of at most 100 characters, broken between words.
std::string wrapped(const std::string& text) {
  constexpr std::size_t kWidth = 100;
  std::string out;
  std::size_t column = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of(" \n", at), text.size());
    if (column > 0 && column + 1 + (end - at) > kWidth) {
      out += '\n';
      column = 0;
    }
    if (column > 0) {
      out += ' ';
      ++column;
    }
    out += text.substr(at, end - at);
    column += end - at;
    if (end < text.size() && text[end] == '\n') {
      out += '\n';
      column = 0;
    }
    at = end + 1;
  }
  return out;
}

}  // namespace

std::string sums_text(const SumTable& table) {
  TextTable lines = {
      {"of", "method", "dtype", "error", "predicted", "bound", "floor", "ns", "x fp32", "bytes"}};
  std::string op;
  for (const SumRow& r : table.rows) {
    const bool timed = r.ns > 0;
    lines.push_back({r.quantity, r.method, std::string(name_of(r.dtype)), brief(r.error), brief(r.predicted),
                     brief(r.bound), brief(r.floor), timed ? digits(r.ns) : "",
                     r.of_fp32 > 0 ? fmt::format("{:.2f}", r.of_fp32) : "", timed ? digits(r.bytes) : ""});
    if (r.method == "op") op = r.ran;
  }
  return fmt::format("{}\nns and bytes: of one {}\n\n", table.title, table.unit) + aligned(lines, 3) + "\n" +
         fmt::format("op: {}; all others are loops on the host\n", op) + wrapped(verdict(table));
}

ordered_json sums_json(const SumTable& table) {
  ordered_json rows = ordered_json::array();
  for (const SumRow& r : table.rows)
    rows.push_back({{"quantity", r.quantity},
                    {"method", r.method},
                    {"dtype", name_of(r.dtype)},
                    {"ran", r.ran},
                    {"roundings", r.roundings},
                    {"error", number(r.error)},
                    {"predicted", number(r.predicted)},
                    {"bound", number(r.bound)},
                    {"floor", number(r.floor)},
                    {"ns", r.ns > 0 ? ordered_json(r.ns) : ordered_json(nullptr)},
                    {"of_fp32", r.of_fp32 > 0 ? ordered_json(r.of_fp32) : ordered_json(nullptr)},
                    {"bytes", r.ns > 0 ? ordered_json(r.bytes) : ordered_json(nullptr)}});
  return {{"name", table.name}, {"title", table.title}, {"unit", table.unit}, {"rows", rows}};
}

}  // namespace kiln::cli
