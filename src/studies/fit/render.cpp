// The page of `kiln fit` (docs/memory.md has the keys of its JSON).
#include <fmt/format.h>

#include "base/units.h"
#include "rows/row_outcome.h"
#include "rows/row_values.h"
#include "studies/fit/fit.h"
#include "studies/format.h"

namespace kiln {
namespace {

struct Line {
  const FitReport& report;
  const FitRow& row;
};

// The measured peak is the check of a row that has one.
RowOutcome outcome_of(const FitRow& r) {
  if (!r.measured) return {.status = RowStatus::modelled};
  const bool same = r.measured->peak_total == r.point.peak;
  return {.gate = same ? Gate::passed : Gate::not_verified};
}

std::string question_text(const Json& row) {
  return text_at(row, "question") + (row.at("all_kept").get<bool>() ? ", everything kept" : "");
}

const Schema<Line>& schema() {
  using L = Line;
  constexpr Where kTable = Where::table;
  static const Schema<L> kSchema = {
      outcome_columns<L>([](const L& l) { return outcome_json(outcome_of(l.row)); }, stored_outcome_forms()),
      {"question", "question", Unit::text, [](const L& l) { return Json(name_of(l.row.question)); }, kTable,
       "", question_text},
      {"all_kept", "", Unit::text, [](const L& l) { return Json(l.row.all_kept); }},
      {"size", "size", Unit::text, [](const L& l) { return Json(l.row.size); }, kTable},
      {"batch", "batch", Unit::count, [](const L& l) { return Json(l.row.spec.step.batch); }, kTable},
      {"ctx", "ctx", Unit::count, [](const L& l) { return Json(l.row.spec.step.context); }, kTable},
      {"recompute", "recompute", Unit::text, [](const L& l) { return Json(name_of(l.row.point.recompute)); },
       kTable},
      {"predicted_peak_bytes", "peak MiB", Unit::mebibytes, [](const L& l) { return Json(l.row.point.peak); },
       kTable},
      or_null<L>({"measured_peak_bytes", "measured", Unit::mebibytes,
                  [](const L& l) { return l.row.measured ? Json(l.row.measured->peak_total) : Json(); },
                  kTable}),
      {"of_memory", "of memory", Unit::percent,
       [](const L& l) {
         return Json(static_cast<double>(l.row.point.peak) / static_cast<double>(l.report.memory));
       },
       kTable},
      {"step_ms", "step ms", Unit::milliseconds, [](const L& l) { return Json(ms(l.row.point.seconds)); },
       kTable},
      {"tokens_per_s", "tokens/s", Unit::rate,
       [](const L& l) { return Json(static_cast<double>(l.row.tokens()) / l.row.point.seconds); }, kTable},
  };
  return kSchema;
}

}  // namespace

StudyPage fit_page(const FitReport& report, bool wide) {
  const FitRequest& q = report.request;
  StudyPage page;
  page.place = fmt::format("{} on {}: {} ({}), {}, preset {}{}{}", q.model.name, report.place,
                           human({report.memory}), report.memory_from, name_of(q.precision), q.preset,
                           q.variants.empty() ? "" : ",", q.variants);
  page.columns = schema().forms();
  page.shown.wide = wide;
  for (const FitRow& r : report.rows) page.rows.push_back(schema().row({report, r}));
  page.notes = report.unanswered;
  page.notes.push_back(fmt::format("step ms and tokens/s: {}, by {}", report.clock, report.clock_from));
  if (!report.clock_note.empty()) page.notes.push_back(report.clock_note);
  for (const FitRow& r : report.rows) {
    if (r.measured && r.measured->peak_total != r.point.peak)
      page.notes.push_back(
          fmt::format("measured peak differs from the predicted one by {} bytes",
                      static_cast<int64_t>(r.measured->peak_total) - static_cast<int64_t>(r.point.peak)));
  }
  page.json = {{"command", "fit"},
               {"size", q.model.name},
               {"params", param_count(q.model)},
               {"device", report.place},
               {"memory_bytes", report.memory},
               {"memory_from", report.memory_from},
               {"precision", name_of(q.precision)},
               {"preset", q.preset},
               {"variants", q.variants},
               {"grad_accum", q.micro_steps},
               {"clock", report.clock},
               {"clock_from", report.clock_from},
               {"clock_note", report.clock_note},
               {"steps_on_meta", report.probes},
               {"unanswered", report.unanswered},
               {"rows", page.rows}};
  return page;
}

}  // namespace kiln
