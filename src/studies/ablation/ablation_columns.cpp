#include "studies/ablation/ablation_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/plain_number.h"
#include "rows/row_outcome.h"
#include "rows/row_values.h"
#include "studies/ablation/ablation_row.h"
#include "studies/format.h"
#include "studies/memory/memory_study.h"

namespace kiln {
namespace {

using Row = AblationRow;

template <auto figure_of_timed>
Json timed(const Row& r) {
  return r.timed ? Json(figure_of_timed(r, *r.timed)) : Json();
}

template <auto figure_of_judged>
Json judged(const Row& r) {
  return r.judged ? Json(figure_of_judged(*r.judged)) : Json();
}

const StepSpec& spec(const Row& r) { return r.plan.setup.spec; }
double tokens(const Row& r) {
  return static_cast<double>(spec(r).step.batch * spec(r).step.context * spec(r).step.micro_steps);
}

double flops(const Row& r) { return train_flops_per_token(r.request.size, spec(r).step.context) * tokens(r); }

Cost executed(const Row& r) {
  Cost sum;
  for (const TimedOp& op : r.plan.ops) sum = sum + op.cost;
  return sum;
}

Json ops_of(const Row& r) {
  Json ops = Json::object();
  for (const auto& [op, variant] : r.plan.variants) ops[op] = variant;
  return ops;
}

Json turns_of(const Row& r) {
  if (!r.timed || r.timed->baseline.empty()) return {};
  Json turns = Json::array();
  for (const double s : r.timed->baseline) turns.push_back(std::round(ms(s) * 1e6) / 1e6);
  return turns;
}

// JSON knows no infinity; null says that the figure was not finite.
Json finite(double x) { return std::isfinite(x) ? Json(x) : Json(); }

Json errors_of(const JudgedRow& j) {
  return {{"logits", finite(j.errors.logits)},
          {"gradients", finite(j.errors.gradients)},
          {"worst_gradient", j.errors.worst_gradient},
          {"loss", finite(j.errors.loss)}};
}

Json tolerances_of(const JudgedRow& j) {
  return {{"logits", j.allowed.logits}, {"gradients", j.allowed.gradients}, {"loss", j.allowed.loss}};
}

// ---- cells that say more than one value

std::string time_cell(const Json& row) {
  const auto p50 = number_at(row, "p50_ms");
  return p50 ? figure(*p50) : ablation_gate_text(row);
}

std::string peak_cell(const Json& row) {
  return number_at(row, "p50_ms") ? mebibytes_at(row, "peak_bytes") : ablation_gate_text(row);
}

std::string interval_cell(const Json& row) {
  if (!number_at(row, "p50_ms") || !number_at(row, "ci95_low_ms")) return {};
  return fmt::format("{} to {}", figure_at(row, "ci95_low_ms"), figure_at(row, "ci95_high_ms"));
}

template <const char* key>
std::string mebibytes_cell(const Json& row) {
  return mebibytes_at(row, key);
}
constexpr char kPredictedPeak[] = "predicted_peak_bytes", kFloorBytes[] = "floor_bytes";

// The baseline is not compared with itself.
bool is_compared(const Json& row) {
  return text_at(row, "group") != "baseline" && number_at(row, "speedup").value_or(0) > 0;
}
std::string baseline_cell(const Json& row) { return is_compared(row) ? figure_at(row, "baseline_ms") : ""; }
std::string speedup_cell(const Json& row) { return is_compared(row) ? text_at(row, "speedup_text") : ""; }
std::string p_cell(const Json& row) {
  return is_compared(row) ? plain(number_at(row, "p").value_or(1), 2) : "";
}
std::string roofline_cell(const Json& row) {
  return text_at(row, "group") == "baseline" ? "" : times(number_at(row, "own_roofline_speedup").value_or(0));
}

// What a row was gated by: its error and its tolerance.
template <const char* key>
std::string error_cell(const Json& row) {
  const Json *errors = row.find("gate_errors"), *allowed = row.find("gate_tolerances");
  if (errors == nullptr || allowed == nullptr || !errors->is_object() || !allowed->is_object()) return {};
  const auto error = number_at(*errors, key), most = number_at(*allowed, key);
  if (!most) return {};
  return error ? fmt::format("{:.1e} of {:.1e}", *error, *most) : fmt::format("not finite, of {:.1e}", *most);
}
constexpr char kLogits[] = "logits", kGradients[] = "gradients", kLoss[] = "loss";

template <const char* tag>
std::string tag_cell(const Json& row) {
  const Json* peaks = row.find("peak_by_tag");
  return peaks == nullptr ? "" : mebibytes_at(*peaks, tag);
}
constexpr char kParam[] = "param", kMaster[] = "master", kGrad[] = "grad", kOptim[] = "optim",
               kActivation[] = "activation", kWorkspace[] = "workspace", kComm[] = "comm", kData[] = "data";

// Those without a get() are figures that compare one stored row with the others' (ablation_tables.cpp).
constexpr auto kFigure = Unit::number;  // text among figures stays as it is

// What was run.
Schema<Row> setup_columns() {
  return {
      {"group", "", Unit::text, [](const Row& r) { return Json(r.planned.group); }},
      {"switch", "", Unit::text, [](const Row& r) { return Json(r.planned.name); }},
      {"label", "switch", Unit::text, nullptr, Where::table},
      {"switches", "", Unit::text, [](const Row& r) { return Json(r.planned.on); }},
      {"size", "", Unit::text, [](const Row& r) { return Json(r.request.size.name); }},
      {"mode", "", Unit::text, [](const Row& r) { return Json(name_of(spec(r).mode)); }},
      {"device", "", Unit::text, [](const Row& r) { return Json(r.request.device.str()); }},
      {"dtype", "", Unit::text, [](const Row& r) { return Json(name_of(spec(r).precision)); }},
      {"base", "", Unit::text, [](const Row& r) { return Json(name_of(r.request.base)); }},
      {"batch", "", Unit::text, [](const Row& r) { return Json(spec(r).step.batch); }},
      {"micro_steps", "", Unit::count, [](const Row& r) { return Json(spec(r).step.micro_steps); }},
      {"ctx", "", Unit::text, [](const Row& r) { return Json(spec(r).step.context); }},
      {"vocab", "", Unit::text, [](const Row& r) { return Json(spec(r).model.vocab); }},
      {"params", "", Unit::rate, [](const Row& r) { return Json(param_count(r.request.size)); }},
      {"recompute", "", Unit::text, [](const Row& r) { return Json(name_of(spec(r).model.recompute)); }},
      {"prefetch", "", Unit::text,
       [](const Row& r) { return Json(r.plan.setup.loader_prefetch ? "on" : "off"); }},
      {"variant_set", "", Unit::text, [](const Row& r) { return Json(r.plan.setup.differences()); }},
      {"ops", "", Unit::text, ops_of},
      outcome_columns<Row>([](const Row& r) { return outcome_json(r); }),
  };
}

// What it cost in time, against the baseline and the roofline.
Schema<Row> time_columns() {
  return {
      {"gate_word", "gate", kFigure, nullptr, Where::table, {}, ablation_gate_text},
      {"p50_ms", "ms p50", kFigure, nullptr, Where::table, {}, time_cell},
      {"ci95_low_ms", "95 % of mean", kFigure, nullptr, Where::wide, {}, interval_cell},
      {"verdict", "stability", kFigure, nullptr, Where::table},
      timing_columns<Row>([](const Row& r) { return r.timed ? timing_json(r.timed->timing) : Json(); }),
      {"baseline_ms", "baseline ms", kFigure, nullptr, Where::table, {}, baseline_cell},
      {"speedup", "speed-up", Unit::times, nullptr, Where::table, {}, speedup_cell},
      {"p", "p", kFigure, nullptr, Where::wide, {}, p_cell},
      {"significant", "", Unit::text},
      {"own_roofline_speedup", "by roofline", Unit::times, nullptr, Where::table, {}, roofline_cell},
      {"graph", "", Unit::text, timed<[](auto&, auto& t) { return t.captured ? "captured" : "off"; }>},
      {"tokens_per_step", "", Unit::count, timed<[](auto& r, auto&) { return tokens(r); }>},
      {"tokens_per_s", "tokens/s", Unit::rate,
       timed<[](auto& r, auto& t) { return tokens(r) / t.timing.p50; }>, Where::table},
      {"flops", "", kFigure, timed<[](auto& r, auto&) { return flops(r); }>},
      {"executed_flops", "", kFigure, timed<[](auto& r, auto&) { return executed(r).flops; }>},
      {"bytes", "", kFigure, timed<[](auto& r, auto&) { return executed(r).bytes; }>},
      {"tflops", "TFLOP/s", kFigure, timed<[](auto& r, auto& t) { return flops(r) / t.timing.p50 / 1e12; }>},
      {"own_roofline_ms", "own roofline ms", kFigure,
       timed<[](auto& r, auto& t) { return sum_of_rooflines(r.plan.ops, t.best); }>, Where::table,
       "predicted_ms"},
      {"roofline_ms", "roofline ms", kFigure, timed<[](auto&, auto& t) { return t.roofline_ms; }>,
       Where::wide, "floor_ms"},
      {"baseline_samples", "", Unit::text, turns_of},
  };
}

// What it took in memory.
Schema<Row> memory_columns() {
  return {
      {"peak_bytes",
       "peak MiB",
       Unit::bytes,
       timed<[](auto&, auto& t) { return t.memory.peak_total; }>,
       Where::table,
       {},
       peak_cell},
      {"predicted_peak_bytes",
       "predicted MiB",
       Unit::bytes,
       [](const Row& r) { return Json(r.plan.memory.peak_total); },
       Where::table,
       {},
       mebibytes_cell<kPredictedPeak>},
      {"floor_bytes",
       "floor MiB",
       Unit::bytes,
       [](const Row& r) { return Json(floor_bytes(spec(r))); },
       Where::table,
       {},
       mebibytes_cell<kFloorBytes>},
      {"memory_ratio", "of baseline", Unit::times, nullptr, Where::table},
      {"param", "param", Unit::bytes, nullptr, Where::table, {}, tag_cell<kParam>},
      {"master", "master", Unit::bytes, nullptr, Where::table, {}, tag_cell<kMaster>},
      {"grad", "grad", Unit::bytes, nullptr, Where::table, {}, tag_cell<kGrad>},
      {"optim", "optim", Unit::bytes, nullptr, Where::table, {}, tag_cell<kOptim>},
      {"activation", "activation", Unit::bytes, nullptr, Where::table, {}, tag_cell<kActivation>},
      {"workspace", "workspace", Unit::bytes, nullptr, Where::table, {}, tag_cell<kWorkspace>},
      {"comm", "comm", Unit::bytes, nullptr, Where::table, {}, tag_cell<kComm>},
      {"data", "data", Unit::bytes, nullptr, Where::table, {}, tag_cell<kData>},
      {"peak_by_tag", "", Unit::text, timed<[](auto&, auto& t) { return tags_json(t.memory.peak); }>},
      {"predicted_peak_by_tag", "", Unit::text, [](const Row& r) { return tags_json(r.plan.memory.peak); }},
      {"reserved_bytes", "", Unit::bytes, timed<[](auto&, auto& t) { return t.memory.peak_reserved; }>},
  };
}

// How near it came to the baseline.
Schema<Row> gate_columns() {
  return {
      {"gate_steps", "", Unit::count, judged<[](auto& j) { return j.steps; }>},
      {"worst_gradient", "furthest parameter", kFigure, nullptr, Where::table},
      {"logits_error", "logits", kFigure, nullptr, Where::table, {}, error_cell<kLogits>},
      {"gradients_error", "gradients", kFigure, nullptr, Where::table, {}, error_cell<kGradients>},
      {"loss_error", "loss", kFigure, nullptr, Where::table, {}, error_cell<kLoss>},
      {"gate_errors", "", Unit::text, judged<errors_of>},
      {"gate_tolerances", "", Unit::text, judged<tolerances_of>},
      {"baseline_first_loss", "", kFigure, judged<[](auto& j) { return j.first_loss; }>},
      {"baseline_last_loss", "", kFigure, judged<[](auto& j) { return j.last_loss; }>},
      {"ceilings", "", Unit::text, [](const Row& r) { return ceilings_row(r.ceilings); }},
  };
}

const Schema<Row>& schema() {
  static const Schema<Row> kSchema = setup_columns() + time_columns() + memory_columns() + gate_columns();
  return kSchema;
}

}  // namespace

Json ablation_row_json(const AblationRow& row) { return schema().row(row); }

std::vector<ColumnForm> ablation_columns(std::initializer_list<std::string_view> keys) {
  std::vector<ColumnForm> columns;
  for (const std::string_view key : keys) {
    const auto all = schema().forms();
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const ColumnForm& c) { return c.key == key; });
    if (found != all.end()) columns.push_back(*found);
  }
  return columns;
}

std::string ablation_gate_text(const Json& row) {
  if (gate_of(row) == Gate::failed) return "gate failed";
  if (status_of(row) != RowStatus::ok) return in_place_of_times(row);
  return gate_of(row) == Gate::passed ? "passed" : "not verified";
}

}  // namespace kiln
