#include <fmt/format.h>

#include <algorithm>

#include "rows/row_outcome.h"
#include "studies/ranks/columns.h"
#include "studies/ranks/fsdp.h"
#include "studies/ranks/overlap_charts.h"

namespace kiln {
namespace {

// A row with the report it is of.
struct Line {
  const BenchFsdpReport& report;
  const FsdpRow& row;
};
using In = const Line&;

double exposed_of(const FsdpRow& r) {
  double us = 0;
  for (const GatherUse& u : r.run.gathers) us += u.exposed();
  return us;
}

int in_time_of(const FsdpRow& r) {
  int n = 0;
  for (const GatherUse& u : r.run.gathers) n += u.in_time();
  return n;
}

double idle_us(const Line& l) { return std::max(0.0, l.row.run.ledger.end - 1e6 * l.report.compute.p50); }

const Schema<LayerGathers>& layer_schema() {
  using Layer = LayerGathers;
  static const Schema<Layer> kSchema = {
      {"layer", "layer", Unit::text, [](const Layer& l) { return Json(l.layer); }, Where::table},
      {"phase", "phase", Unit::text, [](const Layer& l) { return Json(l.phase); }, Where::table},
      {"gathers", "", Unit::count, [](const Layer& l) { return Json(l.gathers); }},
      {.key = "in_time",
       .title = "in time?",
       .get = [](const Layer& l) { return Json(l.in_time); },
       .where = Where::table,
       .text =
           [](const Json& row) {
             const int in_time = row.value("in_time", 0), all = row.value("gathers", 0);
             return in_time == all ? std::string("yes") : fmt::format("{} of {}", in_time, all);
           }},
      {"bytes", "MiB", Unit::bytes, [](const Layer& l) { return Json(l.bytes); }, Where::table},
      {.key = "slack_us",
       .title = "slack us",
       .unit = Unit::count,
       .get = [](const Layer& l) { return Json(l.slack); },
       .where = Where::table,
       .text =
           [](const Json& row) {
             return row.value("in_time", 0) > 0 ? fmt::format("{:.0f}", row["slack_us"].get<double>()) : "-";
           }},
      {"exposed_us", "exposed us", Unit::count, [](const Layer& l) { return Json(l.exposed); }, Where::table},
  };
  return kSchema;
}

std::vector<Json> layers_of(const FsdpRow& r) {
  std::vector<Json> layers;
  for (const LayerGathers& l : by_layer(r.run.gathers)) layers.push_back(layer_schema().row(l));
  return layers;
}

const Schema<Line>& schema() {
  static const Schema<Line> kSchema = {
      {.key = "prefetch",
       .title = "prefetch",
       .get = [](In l) { return Json(l.row.prefetch); },
       .where = Where::table,
       .text =
           [](const Json& row) {
             return fmt::format("{}{}", row.value("prefetch", 0), row.contains("automatic") ? " (auto)" : "");
           }},
      {"automatic", "", Unit::text, [](In l) { return l.row.automatic ? Json(true) : Json(); }},
      {"why_prefetch", "", Unit::text, [](In l) { return l.row.why.empty() ? Json() : Json(l.row.why); }},
      {"strategy", "", Unit::text, [](const Line&) { return Json("fsdp"); }},
      ranks_columns<Line>(
          [](In l) { return ranks_json(l.report.request, l.report.request.batch, l.report.request.ranks); }),
      outcome_columns<Line>([](In l) { return outcome_json(l.row); }),
      timing_columns<Line>([](In l) { return timing_json(l.row.run.timing); }),
      {"communication_ms", "comm ms", Unit::milliseconds,
       [](In l) { return Json(totals_of(l.row.run.ledger).communication / 1e3); }, Where::table},
      {"gathers", "", Unit::count, [](In l) { return Json(l.row.run.gathers.size()); }},
      {.key = "gathers_in_time",
       .title = "gathers in time",
       .unit = Unit::count,
       .get = [](In l) { return Json(in_time_of(l.row)); },
       .where = Where::table,
       .text =
           [](const Json& row) {
             return fmt::format("{} of {}", row.value("gathers_in_time", 0), row.value("gathers", 0));
           }},
      {"gathers_exposed_ms", "gathers exposed ms", Unit::milliseconds,
       [](In l) { return Json(exposed_of(l.row) / 1e3); }, Where::table},
      {"idle_ms", "idle ms", Unit::milliseconds, [](In l) { return Json(idle_us(l) / 1e3); }, Where::table},
      {"predicted_exposed_ms", "predicted idle ms", Unit::milliseconds,
       [](In l) { return l.report.predicts() ? Json(l.row.predicted.exposed / 1e3) : Json(); }, Where::table},
      {"compute_ms", "", Unit::milliseconds, [](In l) { return Json(ms(l.report.compute.p50)); }},
      {"roofline_ms", "roofline ms", Unit::milliseconds, [](In l) { return Json(ms(l.report.compute.p50)); },
       Where::table, "floor_ms"},
      {"last_loss", "", Unit::number, [](In l) { return Json(l.row.run.loss); }},
      {"layers", "", Unit::text, [](In l) { return Json(layers_of(l.row)); }},
  };
  return kSchema;
}

std::string caption(const BenchFsdpReport& r) {
  const BenchFsdpRequest& q = r.request;
  return fmt::format("{}, batch {}, ctx {}, {}, {} ranks on {}, {} thread{} each, {}", q.size.name, q.batch,
                     q.context, name_of(q.precision), q.ranks, q.transport, r.threads,
                     r.threads == 1 ? "" : "s", link_text(q));
}

}  // namespace

StudyPage fsdp_page(const BenchFsdpReport& report, bool wide) {
  StudyPage page;
  page.place = caption(report);
  page.columns = schema().forms();
  page.shown.wide = wide;
  for (const FsdpRow& r : report.rows) {
    page.rows.push_back(schema().row({report, r}));
    page.tables.push_back(table_of(fmt::format("prefetch {}: did the gather arrive in time?", r.prefetch),
                                   layer_schema().forms(), layers_of(r)));
    if (r.automatic)
      page.notes.push_back(
          r.why.empty()
              ? fmt::format("auto took prefetch {}: the calls of this run do not tell what the link costs.",
                            r.prefetch)
              : fmt::format("auto chose prefetch {}.", r.why));
    if (r.automatic && report.predicts())
      page.notes.push_back(fmt::format(
          "At that depth the rank was predicted to be idle for {:.2f} ms{}, and was for {:.2f} ms (step less "
          "compute alone); it waited {:.2f} ms for gathers.",
          r.predicted.exposed / 1e3, report.link_from.empty() ? "" : " by " + report.link_from,
          idle_us({report, r}) / 1e3, exposed_of(r) / 1e3));
    if (r.gate_failed()) page.notes.push_back(fmt::format("prefetch {} is WRONG: {}", r.prefetch, r.reason));
  }
  if (report.stopped) page.notes.push_back("stopped before its last row");
  add_load_note(report, page.notes);
  page.json = ranks_document("bench fsdp", report, page.rows);
  return page;
}

std::vector<std::string> fsdp_result_lines(const BenchFsdpReport& report) {
  std::vector<std::string> lines;
  for (const FsdpRow& r : report.rows) {
    if (r.gate_failed()) continue;
    lines.push_back(result_line("bench fsdp", schema().row({report, r}), r.run.timing, host_json(report)));
  }
  return lines;
}

std::vector<NamedChart> fsdp_charts(const BenchFsdpReport& report) {
  std::vector<NamedLedger> steps;
  for (const FsdpRow& r : report.rows)
    steps.push_back({fmt::format("prefetch {}", r.prefetch), r.run.ledger});
  return {
      {"overlap", overlap_svg(steps, "One step of rank 0, sharded weights gathered ahead", caption(report))}};
}

}  // namespace kiln
