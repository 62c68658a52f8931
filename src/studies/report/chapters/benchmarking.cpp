// Whole steps on the clock: forward, backward and optimizer, their spread, and what warm-up steps are for.
#include <fmt/format.h>

#include <algorithm>

#include "studies/report/chapters/row_facts.h"
#include "studies/step/step_charts.h"
#include "studies/step/step_studies.h"
#include "studies/warmup/warmup_tables.h"

namespace kiln {
namespace {

// Of a phase: mean and deviation, "12.3 ± 0.1".
template <const char* const& kPhase>
std::string phase_text(const Json& row) {
  const Json* phases = row.find("phases");
  const Json* phase = phases == nullptr ? nullptr : phases->find(kPhase);
  if (phase == nullptr || !phase->is_object()) return "-";
  const auto mean = number_at(*phase, "mean_ms"), deviation = number_at(*phase, "std_ms");
  if (!mean) return "-";
  return deviation ? fmt::format("{} ± {}", figure(*mean), figure(*deviation)) : figure(*mean);
}
constexpr const char* kForward = "forward";
constexpr const char* kBackward = "backward";
constexpr const char* kOptimizer = "optimizer";

std::string peak_text(const Json& row) {
  const auto bytes = number_at(row, "peak_bytes");
  return bytes ? bytes_text(*bytes) : "-";
}

std::string median_text(const Json& row) {
  const auto ms = number_at(row, "p50_ms");
  return ms ? figure(*ms) : in_place_of_times(row);
}

Answer script(Rows rows) {
  const std::vector<Json> timed = timed_rows(rows);
  if (timed.empty()) return {};
  Answer a;
  std::vector<std::string> warmups = values_of(timed, "warmups"), samples = values_of(timed, "samples");
  a.sentences.push_back(fmt::format(
      "`kiln bench step` timed {} of {}, in {} ({}), after {} warm-up steps, over {} steps of each.",
      plural(timed.size(), "step"), listed(values_of(timed, "size")), listed(values_of(timed, "dtype")),
      listed(values_of(timed, "mode")), listed(warmups), listed(samples)));
  const std::size_t full =
      rows_where(rows, [](const Json& r) { return status_of(r) == RowStatus::oom; }).size();
  if (full > 0)
    a.sentences.push_back(
        fmt::format("{} found no memory for it, which is a result too.", plural(full, "row")));
  return a;
}

Answer timings(Rows all) {
  const std::vector<Json> rows =
      rows_where(all, [](const Json& r) { return counts(r) || status_of(r) == RowStatus::oom; });
  const std::vector<Json> timed = timed_rows(rows);
  if (timed.empty()) return {};
  Answer a;
  std::vector<double> ratios, spreads;
  for (const Json& row : timed) {
    ratios.push_back(ratio_of(row, "backward_ms", "forward_ms"));
    spreads.push_back(number_at(row, "variation").value_or(0));
  }
  if (const std::string range = range_of_times(ratios); !range.empty())
    a.sentences.push_back(fmt::format("Backward takes {} as long as forward.", range));
  const std::size_t stable =
      rows_where(timed, [](const Json& r) { return word_is(r, "verdict", "stable"); }).size();
  if (const std::string range = range_of_shares(spreads); !range.empty())
    a.sentences.push_back(fmt::format("The standard deviation is {} of the mean; {} of {} rows are stable.",
                                      range, stable, timed.size()));
  for (const ScalingLaw& law : step_scaling(timed))
    if (law.over == "params")
      a.sentences.push_back(fmt::format("Time grows with the parameters to the power of {:.2f} ({}).",
                                        law.measured.exponent, law.held));
  a.tables.push_back(facts_table("", rows,
                                 {{"size", "size", Unit::text, Where::table},
                                  {"mode", "mode", Unit::text, Where::differs},
                                  {"dtype", "precision", Unit::text, Where::table},
                                  {"ctx", "ctx", Unit::text, Where::differs},
                                  {"batch", "batch", Unit::text, Where::differs},
                                  {"preset", "preset", Unit::text, Where::differs},
                                  {"recompute", "recompute", Unit::text, Where::differs},
                                  {"", "forward ms", Unit::text, Where::table, {}, phase_text<kForward>},
                                  {"", "backward ms", Unit::text, Where::table, {}, phase_text<kBackward>},
                                  {"", "optimizer ms", Unit::text, Where::table, {}, phase_text<kOptimizer>},
                                  {"", "step ms, median", Unit::text, Where::table, {}, median_text},
                                  {"verdict", "stability", Unit::text, Where::table},
                                  {"tokens_per_s", "tokens/s", Unit::rate, Where::table},
                                  {"", "peak", Unit::text, Where::table, {}, peak_text}}));
  for (NamedChart& chart : step_charts(timed)) {
    if (!chart.name.starts_with("time-over")) continue;
    const std::string alt = "step " + chart.name;
    a.charts.push_back({std::move(chart), alt});
  }
  return a;
}

Answer without_warmup(Rows rows) {
  const std::vector<Json> timed = rows_where(rows, [](const Json& r) { return r.contains("steps_ms"); });
  if (timed.empty()) return {};
  Answer a;
  for (const std::vector<Json>& group : groups_by(timed, {"size", "ctx", "dtype"})) {
    const Json *cold = least(group, "warmups"), *warm = greatest(group, "warmups");
    if (cold == nullptr || warm == nullptr || cold == warm) continue;
    const double ratio = ratio_at(*cold, *warm, "mean_ms");
    if (ratio > 0)
      a.sentences.push_back(fmt::format(
          "With {} warm-up steps in place of {} the mean step of {} takes {} as long ({} and {}), and its "
          "standard deviation is {} in place of {}.",
          text_at(*cold, "warmups"), text_at(*warm, "warmups"), text_at(*cold, "size"), times(ratio),
          ms_text(number_at(*cold, "mean_ms").value_or(0)), ms_text(number_at(*warm, "mean_ms").value_or(0)),
          ms_text(number_at(*cold, "std_ms").value_or(0)), ms_text(number_at(*warm, "std_ms").value_or(0))));
    const Json* first = cold->find("first_step");
    if (first == nullptr) continue;
    const double excess = number_at(*first, "excess_ms").value_or(0),
                 steady = number_at(*first, "steady_ms").value_or(0);
    if (steady > 0)
      a.sentences.push_back(fmt::format("The first step takes {} more than a later one's {}.",
                                        ms_text(excess), ms_text(steady)));
  }
  a.tables.push_back({"every step, each run in a fresh process", warmup_table(timed), 3, false, {}});
  a.tables.push_back({"the first step's excess", first_step_table(timed), 1, false, {}});
  return a;
}

constexpr Question kQuestions[] = {
    {"1.1.3 (a)",
     "benchmarking_script",
     "The benchmark",
     {"bench step"},
     script,
     "kiln bench step --size small,medium,large --dtype fp32 --preset baseline --warmup 5 --steps 10"},
    {"1.1.3 (b)",
     "benchmarking_script",
     "Forward and backward pass timings",
     {"bench step"},
     timings,
     "kiln bench step --size small,medium,large --dtype fp32 --preset baseline --warmup 5 --steps 10"},
    {"1.1.3 (c)",
     "benchmarking_script",
     "Impact of warm-up steps",
     {"bench warmup"},
     without_warmup,
     "kiln bench warmup --size small --warmup 0,1,2,5 --steps 10"},
};

}  // namespace

Chapter benchmarking_chapter() {
  return {"benchmarking", "End-to-end benchmarking", kQuestions, "profiling"};
}

}  // namespace kiln
