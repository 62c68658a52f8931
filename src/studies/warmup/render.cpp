#include "studies/warmup/render.h"

#include "rows/row_outcome.h"
#include "studies/format.h"
#include "studies/roofline.h"
#include "studies/row_tables.h"

namespace kiln {
namespace {

// A value of a report whose steps were timed.
template <auto Get>
Json timed(const WarmupReport& r) {
  return r.row.timed() ? Json(Get(r)) : Json();
}

Json steps_of(const WarmupReport& r) {
  Json steps = Json::array();
  for (double s : r.run.steps) steps.push_back(ms(s));
  return steps;
}

Json first_step_of(const WarmupReport& r) {
  const FirstStepParts& p = r.run.parts;
  const FirstStepFacts& f = r.run.facts;
  return {{"context_ms", ms(r.context)},
          {"handles_ms", ms(r.run.handles)},
          {"model_ms", ms(r.run.model)},
          {"first_ms", ms(f.first)},
          {"steady_ms", ms(f.steady)},
          {"excess_ms", ms(p.excess)},
          {"module_load_ms", ms(p.module_load)},
          {"library_ms", ms(p.matrix_library)},
          {"allocator_growth_ms", ms(p.allocator_growth)},
          {"page_faults_ms", ms(p.page_faults)},
          {"clock_ramp_ms", ms(p.clock_ramp)},
          {"hidden_ms", -ms(p.hidden)},
          {"rest_ms", ms(p.rest)},
          {"segments", f.segments},
          {"segment_bytes", f.segment_bytes},
          {"page_faults", f.faults_first},
          {"page_faults_of_a_warm_step", f.faults_warm}};
}

using Report = WarmupReport;

const Schema<Report>& schema() {
  static const Schema<Report> kSchema = {
      {"size", "size", Unit::text, [](const Report& r) { return Json(r.row.size.name); }, Where::table},
      {"mode", "", Unit::text, [](const Report& r) { return Json(name_of(r.row.spec.mode)); }},
      {"device", "", Unit::text, [](const Report& r) { return Json(r.device); }},
      {"dtype", "dtype", Unit::text, [](const Report& r) { return Json(name_of(r.row.spec.precision)); },
       Where::table},
      {"micro_steps", "grad accum", Unit::count,
       [](const Report& r) { return Json(r.row.spec.step.micro_steps); }, Where::differs},
      {"batch", "batch", Unit::text, [](const Report& r) { return Json(r.row.spec.step.batch); },
       Where::differs},
      {"ctx", "ctx", Unit::text, [](const Report& r) { return Json(r.row.spec.step.context); }, Where::table},
      {"vocab", "vocab", Unit::text, [](const Report& r) { return Json(r.row.spec.model.vocab); }},
      {"params", "parameters", Unit::rate, [](const Report& r) { return Json(param_count(r.row.size)); }},
      {"preset", "preset", Unit::text, [](const Report& r) { return Json(r.row.preset); }, Where::table},
      {"variants", "variants", Unit::text, [](const Report& r) { return Json(r.row.variants); },
       Where::differs},
      {"variant_set", "", Unit::text, [](const Report& r) { return Json(r.row.variant_set()); }},
      outcome_columns<Report>([](const Report& r) { return outcome_json(r.row); }),
      {"graph", "graph", Unit::text,
       timed<[](const Report& r) { return r.row.captured ? "captured" : "off"; }>, Where::differs},
      timing_columns<Report>(
          [](const Report& r) { return r.row.timed() ? timing_json(r.row.timing) : Json(); }),
      roofline_columns<Report>(timed<[](const Report& r) { return roofline_json(r.row.roofline()); }>),
      {"peak_bytes", "peak MiB", Unit::bytes,
       timed<[](const Report& r) { return r.row.measured.peak_total; }>, Where::table},
      {"predicted_peak_bytes", "predicted MiB", Unit::bytes,
       timed<[](const Report& r) { return r.row.predicted.peak_total; }>, Where::wide},
      {"steps_ms", "", Unit::milliseconds, timed<steps_of>},
      {"first_step", "", Unit::text, timed<first_step_of>},
  };
  return kSchema;
}

}  // namespace

std::span<const ColumnForm> warmup_columns() { return schema().forms(); }

StudyPage warmup_page(const WarmupReport& report, bool wide) {
  StudyPage page;
  page.columns = warmup_columns();
  page.shown.wide = wide;
  page.rows = {schema().row(report)};
  if (!report.row.policy.empty()) page.notes.push_back(report.row.policy);
  add_load_note(report, page.notes);
  const std::vector<Json> stored = rows_of(warmup_result_lines(report));
  page.tables = study_tables("bench warmup", stored);
  page.json = {{"command", "bench warmup"},
               {"device", report.device},
               {"host", host_json(report)},
               {"build_id", own_build()},
               {"rows", page.rows}};
  return page;
}

std::vector<std::string> warmup_result_lines(const WarmupReport& report) {
  if (report.row.status == RowStatus::failed) return {};
  return {result_line("bench warmup", schema().row(report), report.row.timing, host_json(report))};
}

}  // namespace kiln
