#include "studies/step/step_studies.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/json.h"
#include "base/plain_number.h"
#include "rows/row_status.h"
#include "rows/row_values.h"

namespace kiln {
namespace {

// What decides a step's time. variant_set holds the precision and is left out: its parts are here.
constexpr std::array kDecides = {"size",    "mode",        "dtype",    "batch", "ctx",
                                 "vocab",   "preset",      "variants", "graph", "recompute",
                                 "compile", "micro_steps", "clip",     "device"};

std::string same_but(const Json& row, std::initializer_list<std::string_view> keys) {
  std::string text;
  for (const char* key : kDecides) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) text += text_at(row, key) + "\n";
  }
  return text;
}

// Verified or not: a report leaves out what is not before it asks.
bool timed(const Json& row) { return status_of(row) == RowStatus::ok && number_at(row, "p50_ms"); }

struct Axis {
  const char* key;      // of the row
  const char* differs;  // the word that differs with it
  const char* name;
  const char* textbook;
};
// A step's matmuls are linear in weights and in tokens; attention adds a square of the context.
constexpr std::array kAxes = {Axis{"params", "size", "params", "1"}, Axis{"ctx", "ctx", "ctx", "1 to 2"},
                              Axis{"batch", "batch", "batch", "1"}};

// "mode=full dtype=fp32 ...": what a reader needs to know which rows these are.
std::string held_text(const Json& row, const char* differs) {
  std::string text;
  for (const char* key : {"size", "mode", "dtype", "batch", "ctx", "preset"}) {
    if (std::string_view(key) == differs) continue;
    const std::string value = text_at(row, key);
    if (!value.empty()) text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  }
  return text;
}

}  // namespace

std::vector<RowPair> pairs_over(std::span<const Json> rows, const char* key, const std::string& baseline) {
  std::vector<RowPair> pairs;
  // A preset decides over graphs too; rows of two presets are pairs all the same.
  const bool preset = std::string_view(key) == "preset";
  auto rest = [&](const Json& row) { return preset ? same_but(row, {key, "graph"}) : same_but(row, {key}); };
  for (const Json& a : rows) {
    if (!timed(a) || text_at(a, key) != baseline) continue;
    for (const Json& b : rows) {
      if (!timed(b) || text_at(b, key) == baseline || rest(a) != rest(b)) continue;
      RowPair p{a,
                b,
                key,
                compare(samples_of(a), samples_of(b)),
                ratio_of(own_roofline_of(a), own_roofline_of(b)),
                ratio_of(roofline_of(a), roofline_of(b)),
                ratio_at(b, a, "peak_bytes")};
      if (p.achieved.ratio == 0) p.achieved.ratio = ratio_at(a, b, "p50_ms");
      pairs.push_back(std::move(p));
    }
  }
  return pairs;
}

std::vector<RowPair> step_pairs(std::span<const Json> rows) {
  std::vector<RowPair> pairs = pairs_over(rows, "dtype", "fp32");
  for (RowPair& p : pairs_over(rows, "preset", "baseline")) pairs.push_back(std::move(p));
  return pairs;
}

TextTable pair_table(std::span<const RowPair> pairs) {
  TextTable table = {{"size", "mode", "ctx", "batch", "compared", "ms", "ms", "forward", "backward",
                      "achieved", "p", "own roofline", "roofline", "memory"}};
  for (const RowPair& r : pairs) {
    const Json &a = r.baseline, &b = r.judged;
    const char* key = r.over.c_str();
    const std::string other = r.over == "dtype" ? text_at(a, "preset") : text_at(a, "dtype");
    table.push_back({text_at(a, "size"), text_at(a, "mode"), text_at(a, "ctx"), text_at(a, "batch"),
                     fmt::format("{} to {} ({})", text_at(a, key), text_at(b, key), other),
                     figure(number_at(a, "p50_ms").value_or(0)), figure(number_at(b, "p50_ms").value_or(0)),
                     times(ratio_at(a, b, "forward_ms")), times(ratio_at(a, b, "backward_ms")),
                     str(r.achieved), plain(r.achieved.p, 2), times(r.own_roofline), times(r.roofline),
                     times(r.memory)});
  }
  return table;
}

Json pairs_json(std::span<const RowPair> pairs) {
  Json all = Json::array();
  for (const RowPair& r : pairs) {
    const char* key = r.over.c_str();
    all.push_back({{"over", r.over},
                   {"size", text_at(r.baseline, "size")},
                   {"mode", text_at(r.baseline, "mode")},
                   {"ctx", number_at(r.baseline, "ctx").value_or(0)},
                   {"batch", number_at(r.baseline, "batch").value_or(0)},
                   {"baseline", text_at(r.baseline, key)},
                   {"judged", text_at(r.judged, key)},
                   {"baseline_ms", number_at(r.baseline, "p50_ms").value_or(0)},
                   {"judged_ms", number_at(r.judged, "p50_ms").value_or(0)},
                   {"forward_speedup", ratio_at(r.baseline, r.judged, "forward_ms")},
                   {"backward_speedup", ratio_at(r.baseline, r.judged, "backward_ms")},
                   {"speedup", r.achieved.ratio},
                   {"p", r.achieved.p},
                   {"verdict", name_of(r.achieved.significance)},
                   {"significant", r.achieved.significant()},
                   {"own_roofline_speedup", r.own_roofline},
                   {"roofline_speedup", r.roofline},
                   {"memory_ratio", r.memory},
                   {"verified", counts(r.baseline) && counts(r.judged)}});
  }
  return all;
}

std::vector<ScalingLaw> step_scaling(std::span<const Json> rows) {
  std::vector<ScalingLaw> scaling_fits;
  for (const Axis& axis : kAxes) {
    std::map<std::string, std::vector<const Json*>> groups;
    std::vector<std::string> order;
    for (const Json& row : rows) {
      if (!timed(row) || !number_at(row, axis.key)) continue;
      const std::string rest = same_but(row, {axis.differs});
      if (!groups.contains(rest)) order.push_back(rest);
      groups[rest].push_back(&row);
    }
    for (const std::string& rest : order) {
      std::vector<Point> measured, own_roofline;
      for (const Json* row : groups[rest]) {
        const double x = *number_at(*row, axis.key);
        measured.push_back({x, *number_at(*row, "p50_ms")});
        if (const auto p = own_roofline_of(*row)) own_roofline.push_back({x, *p});
      }
      const std::optional<PowerLaw> law = fit_power(measured);
      if (!law) continue;
      ScalingLaw found{axis.name,
                       held_text(*groups[rest].front(), axis.differs),
                       {},
                       *law,
                       own_roofline.size() == measured.size() ? fit_power(own_roofline) : std::nullopt,
                       axis.textbook};
      for (const Json* row : groups[rest]) {
        found.at.push_back(*number_at(*row, axis.key));
        found.measured_ms.push_back(*number_at(*row, "p50_ms"));
        found.own_roofline_ms.push_back(own_roofline_of(*row).value_or(0));
        found.roofline_ms.push_back(roofline_of(*row).value_or(0));
      }
      scaling_fits.push_back(std::move(found));
    }
  }
  return scaling_fits;
}

TextTable scaling_table(std::span<const ScalingLaw> scaling_fits) {
  TextTable table = {{"time over", "held", "points", "exponent", "95 %", "r^2", "own roofline", "textbook"}};
  for (const ScalingLaw& l : scaling_fits)
    table.push_back({l.over, l.held, fmt::format("{}", l.measured.points),
                     fmt::format("{:.2f}", l.measured.exponent),
                     l.measured.points > 2 ? fmt::format("+- {:.2f}", l.measured.error) : "-",
                     l.measured.points > 2 ? fmt::format("{:.3f}", l.measured.r_squared) : "-",
                     l.own_roofline ? fmt::format("{:.2f}", l.own_roofline->exponent) : "-", l.textbook});
  return table;
}

Json scaling_json(std::span<const ScalingLaw> scaling_fits) {
  Json all = Json::array();
  for (const ScalingLaw& l : scaling_fits)
    all.push_back({{"over", l.over},
                   {"held", l.held},
                   {"at", l.at},
                   {"exponent", l.measured.exponent},
                   {"exponent_error", l.measured.error},
                   {"r_squared", l.measured.r_squared},
                   {"own_roofline_exponent", l.own_roofline ? Json(l.own_roofline->exponent) : Json(nullptr)},
                   {"textbook_exponent", l.textbook}});
  return all;
}

}  // namespace kiln
