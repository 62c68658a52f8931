#include "studies/warmup/warmup_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/json.h"
#include "perf/timing/statistics.h"
#include "rows/row_status.h"
#include "rows/row_values.h"

namespace kiln {
namespace {

bool timed(const Json& row) { return status_of(row) == RowStatus::ok && row.contains("steps_ms"); }

double warmups_of(const Json& row) { return number_at(row, "warmups").value_or(0); }

const Json* extreme(std::span<const Json> rows, bool most) {
  const Json* found = nullptr;
  for (const Json& row : rows) {
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
    Part{"context_ms", "context: device start-up", false},
    Part{"handles_ms", "library handles, streams, threads", false},
    Part{"model_ms", "initial weights, tokens", false},
    Part{"module_load_ms", "module load: code copied to the device", true},
    Part{"library_ms", "library: first calls, algorithm selection", true},
    Part{"allocator_growth_ms", "allocator growth", true},
    Part{"page_faults_ms", "page faults", true},
    Part{"clock_ramp_ms", "clock ramp, caches: still present in the second step", true},
    Part{"hidden_ms", "minus: overlapped with the device's work", true},
    Part{"rest_ms", "rest", true},
};

}  // namespace

TextTable warmup_table(std::span<const Json> rows) {
  TextTable table = {{"size", "warm-ups", "steps ms (warm-ups in brackets)", "mean", "std", "stability",
                      "against the most warm-ups"}};
  for (const Json& row : rows) {
    if (!timed(row)) continue;
    const std::vector<double> steps = samples_of(row, "steps_ms");
    const auto warm = static_cast<std::size_t>(warmups_of(row));
    std::string text;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (i > 0) text += ' ';
      text += i < warm ? fmt::format("({})", figure(steps[i])) : figure(steps[i]);
    }
    // Rows of another size are no reference.
    std::vector<Json> alike;
    for (const Json& other : rows) {
      if (text_at(other, "size") == text_at(row, "size") && text_at(other, "ctx") == text_at(row, "ctx"))
        alike.push_back(other);
    }
    const Json* settled = extreme(alike, true);
    std::string against = "-";
    if (settled != nullptr && warmups_of(*settled) > warmups_of(row)) {
      const double mean = number_at(row, "mean_ms").value_or(0),
                   other = number_at(*settled, "mean_ms").value_or(0);
      const Comparison c = compare(samples_of(*settled), samples_of(row));
      against =
          fmt::format("{:+.1f} % ({})", other > 0 ? 100 * (mean / other - 1) : 0, name_of(c.significance));
    }
    table.push_back({text_at(row, "size"), fmt::format("{}", warm), text,
                     figure(number_at(row, "mean_ms").value_or(0)),
                     figure(number_at(row, "std_ms").value_or(0)), text_at(row, "verdict"), against});
  }
  return table;
}

TextTable first_step_table(std::span<const Json> rows) {
  TextTable table = {{"part", "ms", "of the excess"}};
  const Json* row = extreme(rows, false);
  if (row == nullptr || !row->contains("first_step")) return table;
  const Json& first = row->at("first_step");
  const double excess = number_at(first, "excess_ms").value_or(0);
  for (const Part& p : kParts) {
    const auto ms = number_at(first, p.key);
    if (!ms) continue;
    const bool share = p.in_first_step && excess > 0;
    table.push_back({p.name, figure(*ms), share ? fmt::format("{:.0f} %", 100 * *ms / excess) : "before it"});
  }
  table.push_back({"excess of the first step over later ones", figure(excess), excess > 0 ? "100 %" : "-"});
  table.push_back({"a later step", figure(number_at(first, "steady_ms").value_or(0)), "-"});
  if (const auto p = own_roofline_of(*row)) table.push_back({"own roofline", figure(*p), "-"});
  if (const auto f = roofline_of(*row)) table.push_back({"roofline", figure(*f), "-"});
  return table;
}

}  // namespace kiln
