#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/plain_number.h"
#include "rows/row_outcome.h"
#include "rows/row_values.h"
#include "studies/ranks/columns.h"
#include "studies/ranks/ddp.h"
#include "studies/ranks/overlap_tables.h"

namespace kiln {
namespace {

// A row with the report it is of.
struct Line {
  const BenchDdpReport& report;
  const DdpRow& row;
};
using In = const Line&;

double step_us(const DdpRow& r) { return 1e6 * r.run.timing.p50; }
OverlapTotals totals(const Line& l) { return totals_of(l.row.run.ledger); }

std::string bucket_name(const DdpRow& r) {
  return fmt::format("{}{}", plain(r.bucket_mb, 4), r.automatic ? " (auto)" : "");
}
std::string name_of_row(const DdpRow& r) {
  return r.form == "bucketed" ? fmt::format("bucketed, {} MB", plain(r.bucket_mb, 4)) : r.form;
}

double speedup(const Line& l) {
  const DdpRow* naive = l.report.naive();
  return naive == nullptr ? 0 : naive->run.timing.p50 / l.row.run.timing.p50;
}

// What the two alone would take, side by side and perfectly overlapped.
double larger_us(const Line& l) { return std::max(l.report.compute_us(), l.row.communication_alone); }

bool latency_bound(const Line& l) {
  return l.report.cost.latency_bound(static_cast<double>(l.report.gradient_bytes),
                                     static_cast<double>(l.row.calls));
}

// What was run.
Schema<Line> setup_columns() {
  return {
      {"form", "form", Unit::text, [](In l) { return Json(l.row.form); }, Where::table},
      {"strategy", "", Unit::text, [](In l) { return Json("ddp:" + l.row.form); }},
      ranks_columns<Line>(
          [](In l) { return ranks_json(l.report.request, l.report.request.batch, l.report.request.ranks); }),
      {"wire", "", Unit::text,
       [](In l) { return Json(l.report.request.wire == DType::bf16 ? "bf16" : "fp32"); }},
      {"preset", "", Unit::text, [](In l) { return Json(l.report.request.preset); }},
      {.key = "bucket_mb",
       .title = "bucket MB",
       .get = [](In l) { return l.row.form == "bucketed" ? Json(l.row.bucket_mb) : Json(); },
       .where = Where::table,
       .text =
           [](const Json& row) {
             const auto mb = number_at(row, "bucket_mb");
             const bool automatic = row.value("bucket_auto", false);
             return mb ? fmt::format("{}{}", plain(*mb, 4), automatic ? " (auto)" : "") : "";
           }},
      {"bucket_auto", "", Unit::text, [](In l) { return Json(l.row.automatic); }},
      outcome_columns<Line>([](In l) { return outcome_json(l.row); }),
  };
}

// What communication cost, and how much of it was hidden.
Schema<Line> time_columns() {
  return {
      timing_columns<Line>([](In l) { return timing_json(l.row.run.timing); }),
      {.key = "speedup_over_naive",
       .title = "vs naive",
       .unit = Unit::times,
       .get = [](In l) { return Json(speedup(l)); },
       .where = Where::table,
       .text = [](const Json& row) { return times(number_at(row, "speedup_over_naive").value_or(0)); }},
      {"calls", "calls", Unit::count, [](In l) { return Json(l.row.calls); }, Where::wide},
      {"gradient_bytes", "", Unit::bytes, [](In l) { return Json(l.report.gradient_bytes); }},
      {"sent_bytes", "sent MiB", Unit::bytes,
       [](In l) { return Json(l.row.run.volume.sent_per_rank(l.report.request.ranks)); }, Where::wide},
      {"communication_ms", "comm ms", Unit::milliseconds,
       [](In l) { return Json(totals(l).communication / 1e3); }, Where::table},
      {"communication_share", "of step", Unit::percent,
       [](In l) { return Json(totals(l).communication / l.row.run.ledger.end); }, Where::table},
      {"hidden_share", "hidden", Unit::percent, [](In l) { return Json(totals(l).hidden_share()); },
       Where::table},
      {"exposed_ms", "exposed ms", Unit::milliseconds, [](In l) { return Json(totals(l).exposed / 1e3); },
       Where::table},
      {"waited_ms", "idle ms", Unit::milliseconds, [](In l) { return Json(totals(l).waited / 1e3); },
       Where::wide},
      {"predicted_ms", "predicted ms", Unit::milliseconds,
       [](In l) { return Json(l.row.predicted.end / 1e3); }, Where::table},
      {"predicted_hidden_share", "predicted hidden", Unit::percent,
       [](In l) { return Json(totals_of(l.row.predicted).hidden_share()); }, Where::wide},
      {"compute_ms", "compute ms", Unit::milliseconds, [](In l) { return Json(l.report.compute_us() / 1e3); },
       Where::wide},
      {"communication_alone_ms", "comm alone ms", Unit::milliseconds,
       [](In l) { return Json(l.row.communication_alone / 1e3); }, Where::wide},
      {"larger_ms", "", Unit::milliseconds, [](In l) { return Json(larger_us(l) / 1e3); }},
      {"of_larger", "of larger", Unit::times, [](In l) { return Json(step_us(l.row) / larger_us(l)); },
       Where::wide},
      {"roofline_ms", "roofline ms", Unit::milliseconds, [](In l) { return Json(l.report.floor_us() / 1e3); },
       Where::table, "floor_ms"},
      {"of_roofline", "", Unit::percent, [](In l) { return Json(l.report.floor_us() / step_us(l.row)); }},
      {"below_roofline", "", Unit::text,
       [](In l) { return step_us(l.row) < l.report.floor_us() ? Json("unexplained") : Json(); }},
      {"bound", "bound by", Unit::text, [](In l) { return Json(latency_bound(l) ? "latency" : "bandwidth"); },
       Where::wide},
      {"last_loss", "", Unit::number, [](In l) { return Json(l.row.run.loss); }},
  };
}

const Schema<Line>& schema() {
  static const Schema<Line> kSchema = setup_columns() + time_columns();
  return kSchema;
}

std::vector<std::string> notes(const BenchDdpReport& report) {
  std::vector<std::string> lines;
  const auto mb = [](double bytes) { return fmt::format("{} MB", plain(bytes / 1e6, 3)); };
  if (!report.cost_from.empty()) {
    lines.push_back(fmt::format("a sum costs {} us a call and goes at {} GB/s, by {}",
                                plain(1e6 * report.cost.o, 3), plain(report.cost.w / 1e9, 3),
                                report.cost_from));
    std::string best =
        fmt::format("best bucket by sqrt(s w o): {} ({} of them) of {} of gradients", mb(report.best.bytes),
                    plain(report.best.n, 3), mb(static_cast<double>(report.gradient_bytes)));
    if (const DdpRow* r = report.fastest_bucketed_predicted())
      best += fmt::format("; of those tried, by replay {} MB, as measured {} MB", plain(r->bucket_mb, 4),
                          plain(report.fastest_bucketed()->bucket_mb, 4));
    lines.push_back(best);
  }
  for (const DdpRow& r : report.rows) {
    if (r.gate_failed()) lines.push_back(fmt::format("{} is WRONG: {}", r.form, r.reason));
    if (!r.run.timing.stable())
      lines.push_back(fmt::format("{}{}: {}", r.form, r.form == "bucketed" ? " " + bucket_name(r) : "",
                                  r.run.timing.noise().empty() ? "few samples" : r.run.timing.noise()));
  }
  if (report.stopped) lines.push_back("stopped before its last row");
  return lines;
}

std::vector<WhatIf> what_ifs_of(const BenchDdpReport& report, const DdpRow& r) {
  if (!report.request.link || r.gate_failed()) return {};
  return what_ifs(compute_of(r.run.ledger), r.options, *report.request.link, report.request.ranks);
}

// Naive, and the fastest of the others: what is shown in detail. --json has all.
std::vector<const DdpRow*> shown_rows(const BenchDdpReport& report) {
  const DdpRow* naive = report.naive();
  const DdpRow* other = nullptr;
  for (const DdpRow& r : report.rows) {
    if (&r != naive && (other == nullptr || r.run.timing.p50 < other->run.timing.p50)) other = &r;
  }
  std::vector<const DdpRow*> rows;
  for (const DdpRow* r : {naive, other}) {
    if (r != nullptr) rows.push_back(r);
  }
  return rows;
}

Json number(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

// The document of --json has each row's ledger too.
Json document(const BenchDdpReport& report, std::vector<Json> rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i]["ledger"] = ledger_json(report.rows[i].run.ledger);
    rows[i]["what_if"] = what_if_json(what_ifs_of(report, report.rows[i]));
  }
  Json best = {{"predicted_mb", number(report.best.bytes / 1e6)}, {"predicted_n", number(report.best.n)}};
  if (const DdpRow* r = report.fastest_bucketed()) best["measured_mb"] = r->bucket_mb;
  if (const DdpRow* r = report.fastest_bucketed_predicted()) best["replayed_mb"] = r->bucket_mb;
  Json page = ranks_document("bench ddp", report, rows);
  page["compute"] = timing_json(report.compute);
  page["sum_cost"] = {{"overhead_us", number(1e6 * report.cost.o)},
                      {"gb_per_s", number(report.cost.w / 1e9)},
                      {"from", report.cost_from}};
  page["bucket"] = best;
  page["remarks"] = notes(report);
  return page;
}

}  // namespace

std::string ddp_caption(const BenchDdpReport& r) {
  const BenchDdpRequest& q = r.request;
  return fmt::format("{}, batch {}, ctx {}, {}, {} ranks on {} ({}), {} thread{} each, {}", q.size.name,
                     q.batch, q.context, name_of(q.precision), q.ranks, q.transport, r.device, r.threads,
                     r.threads == 1 ? "" : "s", link_text(q));
}

std::vector<NamedLedger> ddp_pair(const BenchDdpReport& report) {
  std::vector<const DdpRow*> rows = shown_rows(report);
  // Where it ran, the form that hides is beside the one that does not, whichever was quicker.
  for (const DdpRow& r : report.rows)
    if (rows.size() == 2 && r.form == "overlap") rows[1] = &r;
  std::vector<NamedLedger> pair;
  for (const DdpRow* r : rows) pair.push_back({"ddp:" + name_of_row(*r), r->run.ledger});
  return pair;
}

StudyPage ddp_page(const BenchDdpReport& report, bool wide) {
  StudyPage page;
  page.place = ddp_caption(report);
  page.columns = schema().forms();
  page.shown.wide = wide;
  for (const DdpRow& r : report.rows) page.rows.push_back(schema().row({report, r}));
  page.notes = notes(report);
  add_load_note(report, page.notes);
  for (const DdpRow* r : shown_rows(report)) {
    const std::string name = name_of_row(*r);
    page.tables.push_back({fmt::format("{}: rank 0's ledger of the step of median length", name),
                           ledger_table(r->run.ledger), 2});
    page.tables.push_back({fmt::format("{}: what if", name),
                           what_if_table(what_ifs_of(report, *r), r->run.ledger.end, report.compute_us()),
                           1});
  }
  page.json = document(report, page.rows);
  return page;
}

std::vector<std::string> ddp_result_lines(const BenchDdpReport& report) {
  std::vector<std::string> lines;
  for (const DdpRow& r : report.rows) {
    if (!r.gate_failed())
      lines.push_back(result_line("bench ddp", schema().row({report, r}), r.run.timing, host_json(report)));
  }
  return lines;
}

}  // namespace kiln
