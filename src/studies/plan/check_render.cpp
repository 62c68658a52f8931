#include <fmt/format.h>

#include "studies/plan/check.h"
#include "studies/ranks/columns.h"

namespace kiln {
namespace {

struct Line {
  const PlanCheckReport& report;
  const PlanCheckRow& row;
};
using In = const Line&;

Json where_json(In l) {
  const PlanRequest& q = l.report.request.plan;
  RanksStudy study;
  study.size = q.model;
  study.device = l.report.request.device;
  study.precision = q.precision;
  study.context = q.context;
  study.micro_steps = q.micro_steps;
  study.link = q.link;
  return ranks_json(study, q.batch_of(l.row.devices), l.row.devices);
}

bool is_best(In l) {
  for (const PlanChoice& c : l.report.choices)
    if (&l.report.rows[c.best] == &l.row) return true;
  return false;
}

const Schema<Line>& schema() {
  static const Schema<Line> kSchema = {
      ranks_columns<Line>(where_json),
      {"rank", "#", Unit::text, [](In l) { return Json(l.row.rank); }, Where::table},
      {"layout", "layout", Unit::text, [](In l) { return Json(l.row.predicted.layout.name()); },
       Where::table},
      outcome_columns<Line>([](In l) { return outcome_json(l.row); }),
      {"strategy", "", Unit::text, [](In l) { return Json(l.row.predicted.layout.strategy); }},
      {"dp", "", Unit::count, [](In l) { return Json(l.row.predicted.layout.data); }},
      {"tp", "", Unit::count, [](In l) { return Json(l.row.predicted.layout.tensor); }},
      {"predicted_ms", "predicted ms", Unit::milliseconds,
       [](In l) { return Json(ms(l.row.predicted.seconds())); }, Where::table},
      timing_columns<Line>([](In l) { return timing_json(l.row.run.timing); }),
      {"measured_over_predicted", "measured / predicted", Unit::times,
       [](In l) { return Json(l.row.ratio()); }, Where::table},
      {.key = "best",
       .title = "quickest",
       .get = [](In l) { return Json(is_best(l)); },
       .where = Where::table,
       .text = [](const Json& row) { return std::string(row["best"].get<bool>() ? "yes" : ""); }},
      {"bound", "bound by", Unit::text, [](In l) { return Json(l.row.predicted.bound()); }, Where::wide},
      {"times", "", Unit::text, [](In l) { return Json(name_of(l.report.kind)); }},
      {"last_loss", "", Unit::number, [](In l) { return Json(l.row.run.loss); }},
  };
  return kSchema;
}

std::string choice_sentence(const PlanCheckReport& r, const PlanChoice& c) {
  const std::string first = r.rows[c.first].predicted.layout.name();
  std::string text = fmt::format("{} ranks: the plan's first choice, {}, ", c.devices, first);
  text += c.right() ? std::string("was the quickest measured")
                    : fmt::format("took {:.1f} % longer than the quickest measured, {}", 100 * c.over_best,
                                  r.rows[c.best].predicted.layout.name());
  const bool noisy = !r.rows[c.first].run.timing.stable() || !r.rows[c.best].run.timing.stable();
  return text + (noisy ? " (noisy: ±5 % not reached)." : ".");
}

}  // namespace

StudyPage plan_check_page(const PlanCheckReport& report, bool wide) {
  const PlanRequest& q = report.request.plan;
  StudyPage page;
  page.place = fmt::format("{}, {}, ctx {}, ranks are threads of {}, link=modelled ({})", q.model.name,
                           name_of(q.precision), q.context, report.device_name, q.link->str());
  page.columns = schema().forms();
  page.shown.wide = wide;
  Json choices = Json::array();
  for (const PlanCheckRow& r : report.rows) {
    page.rows.push_back(schema().row({report, r}));
    if (r.gate_failed())
      page.notes.push_back(fmt::format("{} is WRONG: {}", r.predicted.layout.name(), r.reason));
  }
  for (const PlanChoice& c : report.choices) {
    page.notes.push_back(choice_sentence(report, c));
    choices.append({{"devices", c.devices},
                    {"first", report.rows[c.first].predicted.layout.name()},
                    {"best", report.rows[c.best].predicted.layout.name()},
                    {"over_best", c.over_best}});
  }
  page.notes.push_back(fmt::format(
      "Ranks share the machine: of N each op is {} to take N times as long as alone on it. The "
      "link is modelled, so this says whether layouts are ranked rightly, not how fast a cluster is.",
      report.kind == TimeKind::predicted ? "predicted" : "bounded by the roofline"));
  if (!q.hardware_note.empty()) page.notes.push_back(q.hardware_note + ".");
  add_load_note(report, page.notes);
  if (report.stopped) page.notes.push_back("stopped before its last row");
  page.json = ranks_document("plan", report, page.rows);
  page.json.update({{"check", true}, {"times", name_of(report.kind)}, {"choices", choices}});
  return page;
}

std::vector<std::string> plan_check_lines(const PlanCheckReport& report) {
  std::vector<std::string> lines;
  for (const PlanCheckRow& r : report.rows) {
    if (r.gate_failed()) continue;
    lines.push_back(result_line("plan", schema().row({report, r}), r.run.timing, host_json(report)));
  }
  return lines;
}

}  // namespace kiln
