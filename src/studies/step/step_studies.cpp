#include "report/step_studies.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "report/result_table.h"

namespace kiln {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// What decides a step's time. variant_set holds the precision and is left out: its parts are here.
constexpr std::array kDecides = {"size",     "mode",  "dtype",     "batch",       "ctx",  "vocab", "preset",
                                 "variants", "graph", "recompute", "micro_steps", "clip", "device"};

std::string same_but(const json& row, std::initializer_list<std::string_view> keys) {
  std::string text;
  for (const char* key : kDecides) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) text += word_at(row, key) + "\n";
  }
  return text;
}

bool timed(const json& row) { return word_at(row, "gate") == "passed" && number_at(row, "p50_ms"); }

struct Axis {
  const char* key;      // of the row
  const char* differs;  // the word that differs with it
  const char* name;
  const char* textbook;
};
// Matrix products of a step are linear in weights and in tokens; attention adds a square of the context.
constexpr std::array kAxes = {Axis{"params", "size", "params", "1"}, Axis{"ctx", "ctx", "ctx", "1 to 2"},
                              Axis{"batch", "batch", "batch", "1"}};

// "mode=full dtype=fp32 ...": what a reader needs to know which rows these are.
std::string held_text(const json& row, const char* differs) {
  std::string text;
  for (const char* key : {"size", "mode", "dtype", "batch", "ctx", "preset"}) {
    if (std::string_view(key) == differs) continue;
    const std::string value = word_at(row, key);
    if (!value.empty()) text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  }
  return text;
}

}  // namespace

std::vector<RowPair> pairs_over(std::span<const json> rows, const char* key, const std::string& baseline) {
  std::vector<RowPair> pairs;
  // A preset decides over graphs too; rows of two presets are pairs all the same.
  const bool preset = std::string_view(key) == "preset";
  auto rest = [&](const json& row) { return preset ? same_but(row, {key, "graph"}) : same_but(row, {key}); };
  for (const json& a : rows) {
    if (!timed(a) || word_at(a, key) != baseline) continue;
    for (const json& b : rows) {
      if (!timed(b) || word_at(b, key) == baseline || rest(a) != rest(b)) continue;
      RowPair p{a,
                b,
                key,
                compare(samples_of(a), samples_of(b)),
                ratio_at(a, b, "predicted_ms"),
                ratio_at(a, b, "floor_ms"),
                ratio_at(b, a, "peak_bytes")};
      if (p.achieved.ratio == 0) p.achieved.ratio = ratio_at(a, b, "p50_ms");
      pairs.push_back(std::move(p));
    }
  }
  return pairs;
}

std::vector<RowPair> step_pairs(std::span<const json> rows) {
  std::vector<RowPair> pairs = pairs_over(rows, "dtype", "fp32");
  for (RowPair& p : pairs_over(rows, "preset", "baseline")) pairs.push_back(std::move(p));
  return pairs;
}

TextTable pair_table(std::span<const RowPair> pairs) {
  TextTable table = {{"size", "mode", "ctx", "batch", "compared", "ms", "ms", "forward", "backward",
                      "achieved", "p", "predicted", "floor", "memory"}};
  for (const RowPair& r : pairs) {
    const json &a = r.baseline, &b = r.judged;
    const char* key = r.over.c_str();
    const std::string other = r.over == "dtype" ? word_at(a, "preset") : word_at(a, "dtype");
    table.push_back({word_at(a, "size"), word_at(a, "mode"), word_at(a, "ctx"), word_at(a, "batch"),
                     fmt::format("{} to {} ({})", word_at(a, key), word_at(b, key), other),
                     figure(number_at(a, "p50_ms").value_or(0)), figure(number_at(b, "p50_ms").value_or(0)),
                     times(ratio_at(a, b, "forward_ms")), times(ratio_at(a, b, "backward_ms")),
                     str(r.achieved), fmt::format("{:.2g}", r.achieved.p), times(r.predicted), times(r.floor),
                     times(r.memory)});
  }
  return table;
}

ordered_json pairs_json(std::span<const RowPair> pairs) {
  ordered_json all = ordered_json::array();
  for (const RowPair& r : pairs) {
    const char* key = r.over.c_str();
    all.push_back({{"over", r.over},
                   {"size", word_at(r.baseline, "size")},
                   {"mode", word_at(r.baseline, "mode")},
                   {"ctx", number_at(r.baseline, "ctx").value_or(0)},
                   {"batch", number_at(r.baseline, "batch").value_or(0)},
                   {"baseline", word_at(r.baseline, key)},
                   {"judged", word_at(r.judged, key)},
                   {"baseline_ms", number_at(r.baseline, "p50_ms").value_or(0)},
                   {"judged_ms", number_at(r.judged, "p50_ms").value_or(0)},
                   {"forward_speedup", ratio_at(r.baseline, r.judged, "forward_ms")},
                   {"backward_speedup", ratio_at(r.baseline, r.judged, "backward_ms")},
                   {"speedup", r.achieved.ratio},
                   {"p", r.achieved.p},
                   {"verdict", name_of(r.achieved.verdict)},
                   {"significant", r.achieved.significant()},
                   {"predicted_speedup", r.predicted},
                   {"floor_speedup", r.floor},
                   {"memory_ratio", r.memory}});
  }
  return all;
}

std::vector<ScalingLaw> step_scaling(std::span<const json> rows) {
  std::vector<ScalingLaw> laws;
  for (const Axis& axis : kAxes) {
    std::map<std::string, std::vector<const json*>> groups;
    std::vector<std::string> order;
    for (const json& row : rows) {
      if (!timed(row) || !number_at(row, axis.key)) continue;
      const std::string rest = same_but(row, {axis.differs});
      if (!groups.contains(rest)) order.push_back(rest);
      groups[rest].push_back(&row);
    }
    for (const std::string& rest : order) {
      std::vector<Point> measured, predicted;
      for (const json* row : groups[rest]) {
        const double x = *number_at(*row, axis.key);
        measured.push_back({x, *number_at(*row, "p50_ms")});
        if (const auto p = number_at(*row, "predicted_ms")) predicted.push_back({x, *p});
      }
      const std::optional<PowerLaw> law = fit_power(measured);
      if (!law) continue;
      ScalingLaw found{axis.name,
                       held_text(*groups[rest].front(), axis.differs),
                       {},
                       *law,
                       predicted.size() == measured.size() ? fit_power(predicted) : std::nullopt,
                       axis.textbook};
      for (const json* row : groups[rest]) {
        found.at.push_back(*number_at(*row, axis.key));
        found.measured_ms.push_back(*number_at(*row, "p50_ms"));
        found.predicted_ms.push_back(number_at(*row, "predicted_ms").value_or(0));
        found.floor_ms.push_back(number_at(*row, "floor_ms").value_or(0));
      }
      laws.push_back(std::move(found));
    }
  }
  return laws;
}

TextTable scaling_table(std::span<const ScalingLaw> laws) {
  TextTable table = {{"time over", "held", "points", "exponent", "95 %", "r^2", "predicted", "textbook"}};
  for (const ScalingLaw& l : laws)
    table.push_back({l.over, l.held, fmt::format("{}", l.measured.points),
                     fmt::format("{:.2f}", l.measured.exponent),
                     l.measured.points > 2 ? fmt::format("+- {:.2f}", l.measured.error) : "-",
                     l.measured.points > 2 ? fmt::format("{:.3f}", l.measured.r_squared) : "-",
                     l.predicted ? fmt::format("{:.2f}", l.predicted->exponent) : "-", l.textbook});
  return table;
}

ordered_json scaling_json(std::span<const ScalingLaw> laws) {
  ordered_json all = ordered_json::array();
  for (const ScalingLaw& l : laws)
    all.push_back(
        {{"over", l.over},
         {"held", l.held},
         {"at", l.at},
         {"exponent", l.measured.exponent},
         {"exponent_error", l.measured.error},
         {"r_squared", l.measured.r_squared},
         {"predicted_exponent", l.predicted ? ordered_json(l.predicted->exponent) : ordered_json(nullptr)},
         {"textbook_exponent", l.textbook}});
  return all;
}

}  // namespace kiln
