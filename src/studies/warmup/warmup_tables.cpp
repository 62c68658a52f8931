#include "studies/warmup/warmup_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "perf/timing/statistics.h"
#include "report/result_table.h"

namespace kiln {
namespace {

using nlohmann::json;

std::vector<double> numbers(const json& row, const char* key) {
  std::vector<double> all;
  if (const auto found = row.find(key); found != row.end() && found->is_array()) {
    for (const json& x : *found) all.push_back(x.get<double>());
  }
  return all;
}

bool timed(const json& row) { return word_at(row, "gate") == "passed" && row.contains("steps_ms"); }

double warmups_of(const json& row) { return number_at(row, "warmups").value_or(0); }

const json* extreme(std::span<const json> rows, bool most) {
  const json* found = nullptr;
  for (const json& row : rows) {
    if (!timed(row)) continue;
    const bool better = found == nullptr ||
                        (most ? warmups_of(row) > warmups_of(*found) : warmups_of(row) < warmups_of(*found));
    if (better) found = &row;
  }
  return found;
}

struct Part {
  const char* key;
  const char* name;
  bool in_first_step;
};
constexpr std::array kParts = {
    Part{"context_ms", "context: the device is started", false},
    Part{"handles_ms", "library handles, streams, threads", false},
    Part{"model_ms", "weights drawn, tokens", false},
    Part{"module_load_ms", "module load: code brought to the device", true},
    Part{"library_ms", "library: its first calls, algorithms chosen", true},
    Part{"allocator_growth_ms", "allocator growth", true},
    Part{"page_faults_ms", "page faults", true},
    Part{"clock_ramp_ms", "clock ramp, caches: still there in the second step", true},
    Part{"hidden_ms", "less: beside the device's own work, at no cost", true},
    Part{"rest_ms", "rest", true},
};

}  // namespace

TextTable warmup_table(std::span<const json> rows) {
  TextTable table = {{"size", "warm-ups", "steps ms (warm-ups in brackets)", "mean", "std", "verdict",
                      "over most warm-ups"}};
  for (const json& row : rows) {
    if (!timed(row)) continue;
    const std::vector<double> steps = numbers(row, "steps_ms");
    const auto warm = static_cast<std::size_t>(warmups_of(row));
    std::string text;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (i > 0) text += ' ';
      text += i < warm ? fmt::format("({})", figure(steps[i])) : figure(steps[i]);
    }
    // Rows of another size are no reference.
    std::vector<json> alike;
    for (const json& other : rows) {
      if (word_at(other, "size") == word_at(row, "size") && word_at(other, "ctx") == word_at(row, "ctx"))
        alike.push_back(other);
    }
    const json* settled = extreme(alike, true);
    std::string against = "-";
    if (settled != nullptr && warmups_of(*settled) > warmups_of(row)) {
      const double mean = number_at(row, "mean_ms").value_or(0),
                   other = number_at(*settled, "mean_ms").value_or(0);
      const Comparison c = compare(numbers(*settled, "raw_samples"), numbers(row, "raw_samples"));
      against = fmt::format("{:+.1f} % ({})", other > 0 ? 100 * (mean / other - 1) : 0, name_of(c.verdict));
    }
    table.push_back({word_at(row, "size"), fmt::format("{}", warm), text,
                     figure(number_at(row, "mean_ms").value_or(0)),
                     figure(number_at(row, "std_ms").value_or(0)), word_at(row, "verdict"), against});
  }
  return table;
}

TextTable first_step_table(std::span<const json> rows) {
  TextTable table = {{"part", "ms", "of the excess"}};
  const json* row = extreme(rows, false);
  if (row == nullptr || !row->contains("first_step")) return table;
  const json& first = row->at("first_step");
  const double excess = number_at(first, "excess_ms").value_or(0);
  for (const Part& p : kParts) {
    const auto ms = number_at(first, p.key);
    if (!ms) continue;
    const bool share = p.in_first_step && excess > 0;
    table.push_back({p.name, figure(*ms), share ? fmt::format("{:.0f} %", 100 * *ms / excess) : "before it"});
  }
  table.push_back(
      {"excess of the first step over the later ones", figure(excess), excess > 0 ? "100 %" : "-"});
  table.push_back({"a later step", figure(number_at(first, "steady_ms").value_or(0)), "-"});
  if (const auto p = number_at(*row, "predicted_ms")) table.push_back({"predicted", figure(*p), "-"});
  if (const auto f = number_at(*row, "floor_ms")) table.push_back({"floor", figure(*f), "-"});
  return table;
}

}  // namespace kiln
