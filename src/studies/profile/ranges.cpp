// Ranges of a traced step: the step, its phases, and the scopes inside them.
#include <fmt/format.h>

#include <algorithm>

#include "rows/row_values.h"
#include "studies/format.h"
#include "studies/profile/render.h"

namespace kiln {
namespace {

constexpr Where kTable = Where::table;
constexpr Unit kMs = Unit::milliseconds;

double value(const Json& row, std::string_view key) { return row.at(key).get<double>(); }

struct RangeLine {
  const StepProfile& p;
  const RangeRow& r;

  double rate(double amount) const { return r.per_second(amount) / p.rates.best.flops; }
};

std::string indented(const Json& row) {
  const std::string range = text_at(row, "range");
  if (range.empty()) return text_at(row, "phase");
  const std::size_t star = range.rfind('*');
  const std::size_t dots = static_cast<std::size_t>(std::count(range.begin(), range.end(), '.')) -
                           (star == std::string::npos ? 0 : 1);
  const std::size_t last = range.rfind('.');
  const bool whole = dots == 0 || last == std::string::npos;
  return std::string(2 + 2 * dots, ' ') + (whole ? range : range.substr(last + 1));
}

// A rate, where the range has operations at all.
std::string rate_text(const Json& row, const char* key) {
  return value(row, "flops") > 0 && value(row, "wall_ms") > 0 ? digits(value(row, key)) : "-";
}

std::string percent_of(const Json& row, const char* key, const char* where) {
  return value(row, where) > 0 && value(row, "wall_ms") > 0 ? fmt::format("{:.1f} %", 100 * value(row, key))
                                                            : "-";
}

const Schema<RangeLine>& range_schema() {
  using L = RangeLine;
  using J = const Json&;
  static const Schema<L> kSchema = {
      {"phase", "", Unit::text, [](const L& l) { return Json(l.r.phase); }},
      {"range", "range", Unit::text, [](const L& l) { return Json(l.r.range); }, kTable, "", indented},
      {"ops", "", Unit::count, [](const L& l) { return Json(l.r.ops); }},
      {"kernels", "launches", Unit::count, [](const L& l) { return Json(l.r.kernels); }, kTable},
      {"wall_ms", "ms", kMs, [](const L& l) { return Json(l.r.wall_ms()); }, kTable},
      {"kernel_ms", "", kMs, [](const L& l) { return Json(l.r.ms); }},
      {"idle_ms", "", kMs, [](const L& l) { return Json(l.r.idle_ms); }},
      {"dispatch_ms", "", kMs, [](const L& l) { return Json(l.r.dispatch_ms); }},
      {"of_step", "of step", Unit::share, [](const L& l) { return Json(l.r.wall_ms() / l.p.step().ms()); },
       kTable},
      {"predicted_ms", "predicted", kMs, [](const L& l) { return Json(l.r.predicted_ms); }, kTable},
      {"roofline_ms", "roofline", kMs, [](const L& l) { return Json(l.r.floor_ms); }, kTable, "floor_ms"},
      {"flops", "", Unit::number, [](const L& l) { return Json(l.r.cost.flops); }},
      {"bytes", "", Unit::number, [](const L& l) { return Json(l.r.cost.bytes); }},
      {"model_flops", "", Unit::number, [](const L& l) { return Json(l.r.model_causal); }},
      {"model_flops_dense", "", Unit::number, [](const L& l) { return Json(l.r.model_dense); }},
      {"tflops", "TFLOP/s", Unit::number,
       [](const L& l) { return Json(l.r.per_second(l.r.cost.flops) / 1e12); }, kTable, "",
       [](J row) { return rate_text(row, "tflops"); }},
      {"gb_per_s", "GB/s", Unit::number,
       [](const L& l) { return Json(l.r.per_second(l.r.cost.bytes) / 1e9); }, kTable, "",
       [](J row) { return rate_text(row, "gb_per_s"); }},
      {"mfu", "MFU", Unit::share, [](const L& l) { return Json(l.rate(l.r.model_causal)); }, kTable, "",
       [](J row) { return percent_of(row, "mfu", "model_flops"); }},
      {"mfu_dense", "", Unit::share, [](const L& l) { return Json(l.rate(l.r.model_dense)); }},
      {"hfu", "HFU", Unit::share, [](const L& l) { return Json(l.rate(l.r.cost.flops)); }, kTable, "",
       [](J row) { return percent_of(row, "hfu", "flops"); }},
      {"hfu_dense", "", Unit::share, [](const L& l) { return Json(l.rate(l.r.dense_flops)); }},
  };
  return kSchema;
}

}  // namespace

Json ranges_json(const StepProfile& p, const std::vector<RangeRow>& rows) {
  Json all = Json::array();
  for (const RangeRow& r : rows) all.append(range_schema().row({p, r}));
  return all;
}

std::span<const ColumnForm> range_columns(bool phases_only) {
  static constexpr ColumnForm kPhases[] = {
      {"phase", "of", Unit::text, kTable},
      {"ops", "ops", Unit::count, kTable},
      {"kernels", "launches", Unit::count, kTable},
      {"wall_ms", "wall ms", kMs, kTable},
      {"kernel_ms", "busy", kMs, kTable},
      {"idle_ms", "idle", kMs, kTable},
      {"dispatch_ms", "host dispatch", kMs, kTable},
      {"predicted_ms", "predicted ms", kMs, kTable},
      {"roofline_ms", "roofline ms", kMs, kTable, "floor_ms"},
  };
  if (phases_only) return kPhases;
  return range_schema().forms();
}

}  // namespace kiln
