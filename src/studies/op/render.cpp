#include "studies/op/render.h"

#include <fmt/format.h>

#include "rows/row_outcome.h"
#include "rows/row_values.h"
#include "studies/format.h"
#include "studies/roofline.h"
#include "studies/row_tables.h"

namespace kiln {
namespace {

// A row with the report it is of: the op and where it ran are the same for all of them.
struct Line {
  const BenchReport& report;
  const BenchRow& row;
};

bool timed(const BenchRow& r) { return r.ok(); }
bool wrong(const BenchRow& r) { return r.gate_failed(); }
double giga(double n) { return n / 1e9; }

// A value of rows that were timed.
template <auto Get>
Json of_timed(const Line& l) {
  return timed(l.row) ? Json(Get(l.row)) : Json();
}

RooflineFacts facts_of(const BenchRow& r) {
  return {.measured = ms(r.timing.p50),
          .own = ms(r.own_roofline),
          .best = ms(r.roofline),
          .cached = ms(r.cached_roofline)};
}

Json shape_json(const BenchShape& shape) {
  Json sizes = Json::object();
  for (const auto& [key, value] : shape.all()) sizes[key] = value;
  return sizes;
}

// "all", or "48 of 8192": rows of the timed size at which the results were compared with naive's.
std::string checked_rows(const Json& row) {
  const std::optional<double> checked = number_at(row, "checked_rows"), all = number_at(row, "all_rows");
  if (!checked || !all) return {};
  return *checked == *all ? "all" : fmt::format("{:.0f} of {:.0f}", *checked, *all);
}

// Above its bound a row has no share of it; of_roofline says why.
std::string of_bound_cell(const Json& row) {
  const auto ratio = number_at(row, "ratio");
  return !ratio ? "" : *ratio > 1 ? "faster" : of_roofline_text(*ratio, "");
}

// The names these times had before all commands shared theirs; who reads stored rows may know them only.
Json plain_times(const Line& l) {
  if (!timed(l.row)) return Json::object();
  const Timing& t = l.row.timing;
  const std::optional<Interval> mean = interval_of_times(t.samples);
  return {{"unit", "ms"},
          {"p50", ms(t.p50)},
          {"p20", ms(t.p20)},
          {"p80", ms(t.p80)},
          {"p95", ms(t.p95)},
          {"min", ms(t.min)},
          {"mean", ms(t.mean)},
          {"std", ms(t.std)},
          {"first", ms(t.first)},
          {"ci95_low", mean ? Json(ms(mean->low)) : Json()},
          {"ci95_high", mean ? Json(ms(mean->high)) : Json()}};
}

const Schema<Line>& schema() {
  static const Schema<Line> kSchema = {
      {"op", "op", Unit::text, [](const Line& l) { return Json(l.report.op); }, Where::differs},
      {"variant", "variant", Unit::text, [](const Line& l) { return Json(l.row.variant); }, Where::table},
      {"device", "", Unit::text, [](const Line& l) { return Json(l.row.device); }},
      {"dtype", "dtype", Unit::text, [](const Line& l) { return Json(name_of(l.row.dtype)); }, Where::table},
      {"shape", "shape", Unit::text, [](const Line& l) { return shape_json(l.row.shape); }, Where::table},
      {"pass", "pass", Unit::text, of_timed<[](const BenchRow& r) { return r.form; }>, Where::table},
      outcome_columns<Line>([](const Line& l) { return outcome_json(l.row); }),
      {"relative_error", "rel error", Unit::number,
       [](const Line& l) { return timed(l.row) || wrong(l.row) ? Json(l.row.error) : Json(); }, Where::wide},
      {"allowed_error", "allowed", Unit::number,
       [](const Line& l) { return timed(l.row) || wrong(l.row) ? Json(l.row.allowed) : Json(); },
       Where::wide},
      {"checked_rows", "checked rows", Unit::count,
       [](const Line& l) { return timed(l.row) || wrong(l.row) ? Json(l.row.checked_rows) : Json(); },
       Where::table, "", checked_rows},
      {"all_rows", "", Unit::count,
       [](const Line& l) { return timed(l.row) || wrong(l.row) ? Json(l.row.all_rows) : Json(); }},
      {"", "", Unit::text, plain_times},
      timing_columns<Line>([](const Line& l) { return timed(l.row) ? timing_json(l.row.timing) : Json(); }),
      roofline_columns<Line>(of_timed<[](const BenchRow& r) { return roofline_json(facts_of(r)); }>),
      {"bytes", "", Unit::number, of_timed<[](const BenchRow& r) { return r.cost.bytes; }>},
      {"flops", "", Unit::number, of_timed<[](const BenchRow& r) { return r.cost.flops; }>},
      {"gb_per_s", "GB/s", Unit::number,
       of_timed<[](const BenchRow& r) { return giga(r.bytes_per_second()); }>, Where::table},
      {"gflop_per_s", "GFLOP/s", Unit::number,
       of_timed<[](const BenchRow& r) { return giga(r.flops_per_second()); }>, Where::table},
      {"bound", "bound", Unit::text, of_timed<[](const BenchRow& r) { return r.bound; }>, Where::table},
      {"bound_unit", "", Unit::text,
       of_timed<[](const BenchRow& r) { return r.bound == "copy" ? "GB/s" : "GFLOP/s"; }>},
      {"achieved", "", Unit::number, of_timed<[](const BenchRow& r) { return giga(r.achieved); }>},
      {"ceiling", "", Unit::number, of_timed<[](const BenchRow& r) { return giga(r.ceiling); }>},
      {"ratio", "of bound", Unit::percent, of_timed<[](const BenchRow& r) { return r.ratio; }>, Where::wide,
       "", of_bound_cell},
      {"fits_in_cache", "", Unit::text, of_timed<[](const BenchRow& r) { return r.in_cache; }>},
      speedup_columns<Line>(
          [](const Line& l) { return timed(l.row) ? speedup_json(l.row.speedup, l.row.versus) : Json(); }),
  };
  return kSchema;
}

// Of another device, or left out because it would take long: only notes say so.
bool is_shown(const BenchReport& report, const BenchRow& r) {
  return r.status != RowStatus::skipped && report.device.starts_with(r.device);
}

std::string name_of_row(const BenchRow& r) {
  return fmt::format("{} ({}) {} {}", r.variant, r.device, r.shape.str(), kiln::name_of(r.dtype));
}

std::vector<std::string> notes_of(const BenchReport& report) {
  std::vector<std::string> notes;
  bool cut = false;
  for (const BenchRow& r : report.rows) {
    const std::string name = name_of_row(r);
    if (!timed(r)) {
      notes.push_back(fmt::format("{}: {}: {}",
                                  wrong(r)                     ? "WRONG"
                                  : r.status == RowStatus::oom ? "OOM"
                                                               : name_of(r.status),
                                  name, r.reason));
      continue;
    }
    cut = cut || r.checked_rows < r.all_rows;
    const std::string noise = r.timing.noise();
    if (!noise.empty()) notes.push_back(fmt::format("note: {} {}: {}", r.form, name, noise));
  }
  if (cut)
    notes.emplace_back(
        "note: where \"checked rows\" are some of many, no other rows were compared with naive's");
  return notes;
}

}  // namespace

std::span<const ColumnForm> op_columns() { return schema().forms(); }

StudyPage op_page(const BenchReport& report, bool wide) {
  StudyPage page;
  page.place =
      place_line(report.device, report.device_name, report.threads, report.isa, report.copy, report.flops);
  page.columns = op_columns();
  page.shown = {.wide = wide, .by = {"op", "shape", "dtype"}};
  std::vector<Json> all_timed, others;
  for (const BenchRow& r : report.rows) {
    const Json row = schema().row({report, r});
    (timed(r) ? all_timed : others).push_back(row);
    (is_shown(report, r) ? page.rows : page.others).push_back(row);
  }
  page.notes = notes_of(report);
  for (const std::string& note : roofline_notes(all_timed)) page.notes.push_back("note: " + note);
  add_load_note(report, page.notes);
  const std::vector<Json> stored = rows_of(op_result_lines(report, "bench op"));
  page.tables = study_tables("bench op", stored);
  page.json = bench_document("bench op", report, all_timed);
  page.json["op"] = report.op;
  page.json["not_timed"] = others;
  page.json.update(studies_json("bench op", stored));
  return page;
}

std::vector<std::string> op_result_lines(const BenchReport& report, const std::string& command) {
  std::vector<std::string> lines;
  for (const BenchRow& r : report.rows) {
    if (!is_shown(report, r) || r.status == RowStatus::failed) continue;  // a failure is worth another try
    lines.push_back(result_line(command, schema().row({report, r}), r.timing, host_json(report)));
  }
  return lines;
}

}  // namespace kiln
