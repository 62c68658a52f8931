#include "studies/attention/render.h"

#include <fmt/format.h>

#include <algorithm>

#include "rows/row_outcome.h"
#include "rows/row_values.h"
#include "studies/attention/notes.h"
#include "studies/ceilings.h"
#include "studies/format.h"
#include "studies/roofline.h"
#include "studies/row_tables.h"

namespace kiln {
namespace {

// A cell with the report it is of; and one pass of it.
struct Line {
  const AttentionReport& report;
  const AttentionRow& row;
};
struct PassLine {
  const AttentionReport& report;
  const AttentionRow& row;
  AttentionPass pass;

  const Timing& timing() const { return *row.timing(pass); }
  std::size_t at() const { return static_cast<std::size_t>(pass); }
};

// What was written between calls left nothing of the tensors in the cache.
RooflineFacts facts_of(const PassLine& l) {
  const double cache = l.report.clock.flush > 0 ? 0 : cache_bytes(Device::parse(l.report.device));
  return {.measured = ms(l.timing().p50),
          .own = l.row.own_roofline_ms(l.pass),
          .best = l.row.roofline_ms(l.pass),
          .cached = std::min(l.row.own_roofline_ms(l.pass, cache), l.row.roofline_ms(l.pass, cache))};
}

// A value of rows that were timed, of those some variant takes, and of those that were checked.
template <auto Get>
Json timed(const Line& l) {
  return l.row.timed() ? Json(Get(l.row)) : Json();
}
template <auto Get>
Json planned(const Line& l) {
  return l.row.planned() ? Json(Get(l.row)) : Json();
}
template <auto Get>
Json checked(const Line& l) {
  return l.row.timed() || l.row.gate_failed() ? Json(Get(l.row)) : Json();
}

std::string mask_of(const Json& row) {
  if (!row.contains("causal")) return {};
  return fmt::format("{}{}", text_at(row, "causal") == "yes" ? "causal" : "full",
                     text_at(row, "packed") == "yes" ? " packed" : "");
}

std::string sizes_of(const Json& row) {
  if (!row.contains("seq")) return {};
  return fmt::format("{}x{}x{}x{}", text_at(row, "batch"), text_at(row, "heads"), text_at(row, "seq"),
                     text_at(row, "d"));
}

Json needed_of(const AttentionRow& r) {
  Json by_tensor = Json::object();
  for (const NamedBytes& n : r.plan.needed) by_tensor[n.what] = n.bytes;
  return by_tensor;
}

// "all", or "48 of 196608": queries, of each key/value head, whose results were compared with naive's.
std::string checked_queries(const Json& row) {
  const std::optional<double> checked = number_at(row, "checked_queries"),
                              all = number_at(row, "all_queries");
  if (!checked || !all) return {};
  return *checked == *all ? "all" : fmt::format("{:.0f} of {:.0f}", *checked, *all);
}

// Of a cell on meta, which nothing is timed of.
Json planned_flops(const Line& l) {
  return l.report.planned ? Json(l.row.cell.least(AttentionPass::both).flops) : Json();
}
std::string planned_gflop(const Json& row) {
  return row.contains("fits") ? figure(number_at(row, "flops").value_or(0) / 1e9) : "";
}
Json fits(const Line& l) {
  const bool fits = l.row.status == RowStatus::modelled, full = l.row.status == RowStatus::oom;
  return l.report.planned && (fits || full) ? Json(fits) : Json();
}

Json datasheet_floor(const Line& l) {
  if (!l.row.timed() || l.report.datasheet <= 0) return {};
  return 1e3 * l.row.cell.least(AttentionPass::both).flops / l.report.datasheet;
}

// Measured, or planned where nothing is run.
template <const auto& kKey, const auto& kPlanned>
std::string mebibytes(const Json& row) {
  const ColumnForm form{row.contains(kKey) ? kKey : kPlanned, "", Unit::bytes};
  return value_at(row, form) == nullptr ? "" : cell_text(row, form);
}
constexpr const char kBefore[] = "before_backward_bytes", kPeak[] = "peak_bytes",
                     kPlannedBefore[] = "predicted_before_backward_bytes",
                     kPlannedPeak[] = "predicted_peak_bytes";

// What a cell is.
const Schema<Line>& cell_schema() {
  static const Schema<Line> kSchema = {
      {"table", "", Unit::text, [](const Line& l) { return Json(l.report.table); }},
      {"device", "", Unit::text, [](const Line& l) { return Json(l.report.device); }},
      {"op", "", Unit::text, [](const Line&) { return Json("attention"); }},
      {"dtype", "dtype", Unit::text, [](const Line& l) { return Json(name_of(l.row.cell.dtype)); },
       Where::table},
      {"causal", "", Unit::text, [](const Line& l) { return Json(l.row.cell.causal); }},
      {"packed", "", Unit::text, [](const Line& l) { return Json(l.row.cell.packed); }},
      {"batch", "", Unit::count, [](const Line& l) { return Json(l.row.cell.batch); }},
      {"heads", "", Unit::count, [](const Line& l) { return Json(l.row.cell.heads); }},
      {"seq", "", Unit::count, [](const Line& l) { return Json(l.row.cell.seq); }},
      {"d", "", Unit::count, [](const Line& l) { return Json(l.row.cell.d); }},
      {"", "form", Unit::text, nullptr, Where::table, "", mask_of},
      {"variant", "variant", Unit::text, [](const Line& l) { return Json(l.row.variant); }, Where::table},
      {"backward_variant", "in backward", Unit::text,
       [](const Line& l) { return l.row.one_variant() ? Json() : Json(l.row.backward_variant); },
       Where::table},
      {"", "BxHxTxD", Unit::text, nullptr, Where::table, "", sizes_of},
      {"auto", "", Unit::text, [](const Line& l) { return Json(l.row.automatic); }},
      outcome_columns<Line>([](const Line& l) { return outcome_json(l.row); }),
      {"tiles", "tiles", Unit::text,
       [](const Line& l) { return l.row.tiles.empty() ? Json() : Json(l.row.tiles); }, Where::wide},
      {"fits", "fits", Unit::text, fits, Where::table},
  };
  return kSchema;
}

// What its passes share: memory, and how the result was checked.
const Schema<Line>& memory_schema() {
  static const Schema<Line> kSchema = {
      {"flops", "GFLOP", Unit::number, planned_flops, Where::table, "", planned_gflop},
      {kPlannedBefore, "", Unit::bytes,
       planned<[](const AttentionRow& r) { return r.plan.memory.before_backward; }>},
      {kPlannedPeak, "predicted MiB", Unit::bytes,
       planned<[](const AttentionRow& r) { return r.plan.memory.peak; }>, Where::wide},
      {"needed_by_tensor", "", Unit::bytes, planned<needed_of>},
      {"available_bytes", "", Unit::bytes,
       [](const Line& l) { return l.row.status == RowStatus::oom ? Json(l.row.free_memory) : Json(); }},
      {"relative_error", "rel error", Unit::number, checked<[](const AttentionRow& r) { return r.error; }>,
       Where::table},
      {"allowed_error", "allowed", Unit::number, checked<[](const AttentionRow& r) { return r.allowed; }>,
       Where::wide},
      {"checked_queries", "checked queries", Unit::count,
       checked<[](const AttentionRow& r) { return r.checked_queries; }>, Where::wide, "", checked_queries},
      {"all_queries", "", Unit::count, checked<[](const AttentionRow& r) { return r.all_queries; }>},
      {kBefore, "before bwd MiB", Unit::bytes,
       timed<[](const AttentionRow& r) { return r.measured.before_backward; }>, Where::table, "",
       mebibytes<kBefore, kPlannedBefore>},
      {kPeak, "peak MiB", Unit::bytes, timed<[](const AttentionRow& r) { return r.measured.peak; }>,
       Where::table, "", mebibytes<kPeak, kPlannedPeak>},
      {"datasheet_floor_ms", "", Unit::milliseconds, datasheet_floor},
  };
  return kSchema;
}

const Schema<PassLine>& pass_schema() {
  static const Schema<PassLine> kSchema = {
      {"pass", "pass", Unit::text, [](const PassLine& l) { return Json(name_of(l.pass)); }, Where::table},
      {"flush_bytes", "", Unit::bytes, [](const PassLine& l) { return Json(l.report.clock.flush); }},
      timing_columns<PassLine>([](const PassLine& l) { return timing_json(l.timing()); }),
      {"first_ms", "", Unit::milliseconds, [](const PassLine& l) { return Json(ms(l.timing().first)); }},
      {"flops", "", Unit::number, [](const PassLine& l) { return Json(l.row.cell.least(l.pass).flops); }},
      {"tflops", "TFLOP/s", Unit::number,
       [](const PassLine& l) { return Json(l.row.flops_per_second(l.pass) / 1e12); }, Where::table},
      {"of_ceiling", "of ceiling", Unit::percent,
       [](const PassLine& l) { return Json(l.row.of_ceiling(l.pass)); }, Where::table},
      roofline_columns<PassLine>([](const PassLine& l) { return roofline_json(facts_of(l)); }),
      speedup_columns<PassLine>(
          [](const PassLine& l) { return speedup_json(l.row.speedups[l.at()], l.row.versus[l.at()]); }),
  };
  return kSchema;
}

Json row_of(const AttentionReport& report, const AttentionRow& r) {
  Json row = cell_schema().row({report, r});
  row.update(memory_schema().row({report, r}));
  return row;
}

Json row_of(const AttentionReport& report, const AttentionRow& r, AttentionPass pass) {
  Json row = row_of(report, r);
  row.update(pass_schema().row({report, r, pass}));
  return row;
}

std::string place_of(const AttentionReport& report) {
  if (report.planned) return fmt::format("{}: planned, nothing is run", report.device);
  std::string text =
      place_line(report.device, report.device_name, report.threads, report.isa, report.copy, report.flops);
  text += report.clock.wait_each ? "; the host synchronizes around every call"
                                 : "; calls are queued, timed by device events";
  if (report.clock.flush > 0)
    text += fmt::format("; {} written before each, for a cold cache", human({report.clock.flush}));
  return text;
}

// A program wants a cell's passes side by side, a table and a spreadsheet one below the other.
Json document(const AttentionReport& report) {
  std::vector<Json> rows, others, scaling_fits;
  for (const AttentionRow& r : report.rows) {
    Json row = row_of(report, r);
    if (r.timed()) {
      Json& passes = row["passes"] = Json::object();
      for (AttentionPass p : report.passes) passes[name_of(p)] = pass_schema().row({report, r, p});
    }
    (r.timed() || r.status == RowStatus::modelled ? rows : others).push_back(std::move(row));
  }
  for (const ScalingFit& law : report.scaling_fits)
    scaling_fits.push_back({{"variant", law.variant},
                            {"dtype", name_of(law.cell.dtype)},
                            {"d", law.cell.d},
                            {"bytes_x_seq", law.linear},
                            {"bytes_x_seq_squared", law.square}});
  Json page = bench_document(report.command, report, rows);
  if (report.planned)
    for (const char* measured : {"host", "ceilings"}) page.erase(measured);
  page["table"] = report.table;
  page["clock"] = {{"wait_each", report.clock.wait_each}, {"flush_bytes", report.clock.flush}};
  page["not_timed"] = others;
  if (!scaling_fits.empty()) page["memory_before_backward"] = scaling_fits;
  return page;
}

}  // namespace

std::span<const ColumnForm> attention_columns() {
  static const std::vector<ColumnForm> kForms = [] {
    std::vector<ColumnForm> forms;
    for (const auto& part : {cell_schema().forms(), pass_schema().forms(), memory_schema().forms()})
      forms.insert(forms.end(), part.begin(), part.end());
    return forms;
  }();
  return kForms;
}

StudyPage attention_page(const AttentionReport& report, bool wide) {
  StudyPage page;
  page.place = place_of(report);
  page.columns = attention_columns();
  page.shown.wide = wide;
  for (const AttentionRow& r : report.rows) {
    if (r.timed())
      for (AttentionPass p : report.passes) page.rows.push_back(row_of(report, r, p));
    else
      (r.status == RowStatus::skipped ? page.others : page.rows).push_back(row_of(report, r));
  }
  page.notes = attention_notes(report);
  for (const std::string& note : roofline_notes(page.rows)) page.notes.push_back("note: " + note);
  add_load_note(report, page.notes);
  const std::vector<Json> stored = rows_of(attention_result_lines(report));
  page.tables = study_tables(report.command, stored);
  page.json = document(report);
  page.json.update(studies_json(report.command, stored));
  return page;
}

std::vector<std::string> attention_result_lines(const AttentionReport& report) {
  std::vector<std::string> lines;
  for (const AttentionRow& r : report.rows) {
    if (r.status == RowStatus::oom || r.status == RowStatus::unsupported)
      lines.push_back(result_line(report.command, row_of(report, r), {}, host_json(report)));
    if (!r.timed()) continue;
    for (AttentionPass p : report.passes)
      lines.push_back(result_line(report.command, row_of(report, r, p), *r.timing(p), host_json(report)));
  }
  return lines;
}

}  // namespace kiln
