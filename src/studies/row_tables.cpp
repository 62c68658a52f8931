#include "studies/row_tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "rows/row_outcome.h"
#include "studies/ablation/quality_curves.h"
#include "studies/attention/render.h"
#include "studies/compare/render.h"
#include "studies/format.h"
#include "studies/measure/measure.h"
#include "studies/op/op_studies.h"
#include "studies/op/render.h"
#include "studies/roofline.h"
#include "studies/step/render.h"
#include "studies/step/step_studies.h"
#include "studies/sweep/variance_table.h"
#include "studies/warmup/render.h"
#include "studies/warmup/warmup_tables.h"

namespace kiln {
namespace {

constexpr const char* kStepOptions[] = {"size", "mode", "dtype", "batch", "ctx", "preset", "recompute"};
constexpr const char* kAttentionOptions[] = {"dtype", "batch", "heads", "seq", "d", "variant", "pass"};

bool is_attention(const std::string& command) {
  return command.starts_with("bench attention") || command.starts_with("bench flash");
}

using Tables = std::vector<PageTable>;

void add_variance(Tables& tables, std::span<const Json> rows, std::span<const char* const> options) {
  if (const auto shares = variance_shares(rows, options); !shares.empty())
    tables.push_back({"variance of log time by option", variance_table(shares), 1});
}

Tables step_tables(std::span<const Json> rows) {
  Tables tables;
  if (const auto pairs = step_pairs(rows); !pairs.empty())
    tables.push_back(
        {"speed-up of one against the other (rank test over all samples)", pair_table(pairs), 5});
  if (const auto scaling_fits = step_scaling(rows); !scaling_fits.empty())
    tables.push_back(
        {"growth of time: time ~ x^exponent, beside that of the rooflines", scaling_table(scaling_fits), 2});
  add_variance(tables, rows, kStepOptions);
  return tables;
}

Tables op_tables(std::span<const Json> rows) {
  Tables tables;
  std::vector<Ladder> ladders = op_ladders(rows);
  constexpr std::size_t kMostLadders =
      4;  // of a sweep over many shapes the last one shows it; --json has all
  if (ladders.size() > kMostLadders) ladders.erase(ladders.begin(), ladders.end() - 1);
  for (const Ladder& ladder : ladders)
    tables.push_back({fmt::format("ladder of {} {} {}: each step against the one before", ladder.op,
                                  ladder.shape, ladder.dtype),
                      ladder_table(ladder), 1});
  if (const auto all = op_crossovers(rows); !all.empty())
    tables.push_back({"where it pays: against the faster of naive and composed", crossover_table(all), 6});
  return tables;
}

Tables warmup_study_tables(std::span<const Json> rows) {
  return {{"every step, each run in a fresh process", warmup_table(rows), 3},
          {"first step's time by cause", first_step_table(rows), 1}};
}

// A command shows what it measured, also where that was compared with nothing, and says so.
Tables marked(Tables tables, std::span<const Json> rows) {
  const bool unverified = std::any_of(rows.begin(), rows.end(), [](const Json& row) {
    return status_of(row) == RowStatus::ok && gate_of(row) != Gate::passed;
  });
  if (unverified)
    for (PageTable& t : tables) t.heading += " (not verified)";
  return tables;
}

// What distinguishes rows of any command, and the figures all of them have.
std::span<const ColumnForm> common_columns() {
  static const std::vector<ColumnForm> kForms = [] {
    std::vector<ColumnForm> forms;
    for (const char* word : {"op", "size", "mode", "dtype", "batch", "ctx", "shape", "preset", "variant",
                             "pass", "strategy", "ranks"})
      forms.push_back({word, word, Unit::text, Where::differs});
    forms.insert(forms.end(), outcome_forms().begin(), outcome_forms().end());
    forms.insert(forms.end(), timing_forms().begin(), timing_forms().end());
    forms.push_back({"predicted_ms", "predicted ms", Unit::milliseconds, Where::table});
    forms.push_back({"fit_ms", "fit ms", Unit::milliseconds, Where::table});
    forms.push_back({"roofline_ms", "roofline ms", Unit::milliseconds, Where::table, "floor_ms"});
    forms.push_back(
        {"of_roofline", "of roofline", Unit::percent, Where::table, "of_floor", of_roofline_cell});
    forms.push_back({"tokens_per_s", "tokens/s", Unit::rate, Where::table});
    forms.push_back({"peak_bytes", "peak MiB", Unit::bytes, Where::table});
    return forms;
  }();
  return kForms;
}

// Peaks have no time beside them.
std::span<const ColumnForm> memory_columns() {
  static const std::vector<ColumnForm> kForms = [] {
    std::vector<ColumnForm> forms;
    for (const char* word : {"size", "phase", "dtype", "batch", "ctx", "preset", "recompute"})
      forms.push_back({word, word, Unit::text, Where::differs});
    forms.insert(forms.end(), outcome_forms().begin(), outcome_forms().end());
    forms.push_back({"predicted_peak_bytes", "predicted peak MiB", Unit::bytes, Where::table});
    forms.push_back({"measured_peak_bytes", "measured peak MiB", Unit::bytes, Where::table});
    forms.push_back({"floor_bytes", "weights and state MiB", Unit::bytes, Where::wide});
    return forms;
  }();
  return kForms;
}

// What a row of an ablation is, before what rows of any command are.
std::span<const ColumnForm> ablate_columns() {
  static const std::vector<ColumnForm> kForms = [] {
    std::vector<ColumnForm> forms = {{"group", "group", Unit::text, Where::differs},
                                     {"switch", "switch", Unit::text, Where::differs}};
    const std::span<const ColumnForm> common = common_columns();
    forms.insert(forms.end(), common.begin(), common.end());
    return forms;
  }();
  return kForms;
}

}  // namespace

std::vector<Json> rows_of(const std::vector<std::string>& result_lines) {
  std::vector<Json> rows;
  rows.reserve(result_lines.size());
  for (const std::string& line : result_lines) rows.push_back(Json::parse(line));
  return rows;
}

std::span<const ColumnForm> columns_of(std::string_view command) {
  struct Command {
    std::string_view name;
    std::span<const ColumnForm> (*columns)();
  };
  static constexpr Command kCommands[] = {
      {"bench step", step_columns},       {"bench op", op_columns},
      {"bench warmup", warmup_columns},   {"bench attention", attention_columns},
      {"bench flash", attention_columns}, {"bench leaderboard", attention_columns},
      {"memory", memory_columns},         {"ablate quality", quality_columns},
      {"ablate", ablate_columns},
  };
  for (const Command& c : kCommands)
    if (command.starts_with(c.name)) return c.columns();
  return common_columns();
}

std::vector<PageTable> study_tables(const std::string& command, std::span<const Json> rows) {
  if (command.starts_with("bench step")) return marked(step_tables(rows), rows);
  if (command.starts_with("bench op")) return op_tables(rows);
  if (command.starts_with("bench warmup")) return marked(warmup_study_tables(rows), rows);
  Tables tables;
  if (is_attention(command)) add_variance(tables, rows, kAttentionOptions);
  return marked(std::move(tables), rows);
}

Json studies_json(const std::string& command, std::span<const Json> rows) {
  Json studies = Json::object();
  if (command.starts_with("bench step")) {
    studies["pairs"] = pairs_json(step_pairs(rows));
    studies["scaling"] = scaling_json(step_scaling(rows));
    studies["variance"] = variance_json(variance_shares(rows, kStepOptions));
  } else if (command.starts_with("bench op")) {
    studies["ladders"] = ladders_json(op_ladders(rows));
    studies["crossovers"] = crossovers_json(op_crossovers(rows));
  } else if (is_attention(command)) {
    studies["variance"] = variance_json(variance_shares(rows, kAttentionOptions));
  }
  return studies;
}

}  // namespace kiln
