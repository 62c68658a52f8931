#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "studies/ranks/ddp.h"
#include "studies/format.h"
#include "kiln/study_tables.h"
#include "studies/ranks/overlap_tables.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kLeft = 2;

std::string ms_text(double us) { return digits(us / 1e3); }
std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }
double step_us(const DdpRow& r) { return 1e6 * r.run.timing.p50; }

std::string bucket_text(const DdpRow& r) {
  if (r.form != "bucketed") return "-";
  return fmt::format("{:.4g}{}", r.bucket_mb, r.automatic ? " (auto)" : "");
}

double speedup(const BenchDdpReport& report, const DdpRow& r) {
  return report.naive() == nullptr ? 0 : report.naive()->run.timing.p50 / r.run.timing.p50;
}

// What the two alone would take, side by side and perfectly overlapped.
double larger_us(const BenchDdpReport& report, const DdpRow& r) {
  return std::max(report.compute_us(), r.communication_alone);
}

std::string bound_of(const BenchDdpReport& report, const DdpRow& r) {
  return report.cost.latency_bound(static_cast<double>(report.gradient_bytes), static_cast<double>(r.calls))
             ? "latency"
             : "bandwidth";
}

TextTable main_table(const BenchDdpReport& report) {
  TextTable table = {{"form", "bound by", "bucket MB", "calls", "step ms p50", "std", "vs naive", "comm ms",
                      "of step", "hidden", "exposed ms", "predicted ms", "compute ms", "comm alone ms",
                      "of larger", "floor ms"}};
  for (const DdpRow& r : report.rows) {
    const OverlapTotals t = totals_of(r.run.ledger);
    table.push_back({r.form, bound_of(report, r), bucket_text(r), fmt::format("{}", r.calls),
                     ms_text(step_us(r)), digits(ms(r.run.timing.std)),
                     speedup(report, r) > 0 ? fmt::format("{:.2f}x", speedup(report, r)) : "-",
                     ms_text(t.communication), percent(t.communication / r.run.ledger.end),
                     percent(t.hidden_share()), ms_text(t.exposed), ms_text(r.predicted.end),
                     ms_text(report.compute_us()), ms_text(r.communication_alone),
                     fmt::format("{:.2f}x", step_us(r) / larger_us(report, r)), ms_text(report.floor_us())});
  }
  return table;
}

std::string link_name(const BenchDdpReport& r) { return r.request.link ? "modelled" : "none"; }

std::vector<std::string> remarks(const BenchDdpReport& report) {
  std::vector<std::string> lines;
  const auto mb = [](double bytes) { return fmt::format("{:.3g} MB", bytes / 1e6); };
  if (!report.cost_from.empty()) {
    lines.push_back(fmt::format("a sum costs {:.3g} us a call and goes at {:.3g} GB/s, by {}",
                                1e6 * report.cost.o, report.cost.w / 1e9, report.cost_from));
    std::string best =
        fmt::format("best bucket by sqrt(s w o): {} ({:.3g} of them) of {} of gradients",
                    mb(report.best.bytes), report.best.n, mb(static_cast<double>(report.gradient_bytes)));
    if (const DdpRow* r = report.fastest_bucketed_predicted())
      best += fmt::format("; of those tried, by replay {:.4g} MB, as measured {:.4g} MB", r->bucket_mb,
                          report.fastest_bucketed()->bucket_mb);
    lines.push_back(best);
  }
  for (const DdpRow& r : report.rows) {
    if (!r.wrong.empty()) lines.push_back(fmt::format("{} is WRONG: {}", r.form, r.wrong));
    if (!r.run.timing.stable())
      lines.push_back(fmt::format("{} {}: {}", r.form, bucket_text(r),
                                  r.run.timing.noise().empty() ? "few samples" : r.run.timing.noise()));
  }
  if (report.stopped) lines.push_back("stopped before its last row");
  return lines;
}

std::vector<WhatIf> what_ifs_of(const BenchDdpReport& report, const DdpRow& r) {
  if (!report.request.link || !r.wrong.empty()) return {};
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

ordered_json row_json(const BenchDdpReport& report, const DdpRow& r) {
  const BenchDdpRequest& q = report.request;
  const OverlapTotals t = totals_of(r.run.ledger);
  ordered_json row = {{"size", q.size.name},
                      {"form", r.form},
                      {"strategy", "ddp:" + r.form},
                      {"device", report.device},
                      {"dtype", name_of(q.precision)},
                      {"wire", q.wire == DType::bf16 ? "bf16" : "fp32"},
                      {"preset", q.preset},
                      {"batch", q.batch},
                      {"ctx", q.context},
                      {"ranks", q.ranks},
                      {"transport", q.transport},
                      {"link", link_name(report)}};
  if (q.link) row["link_model"] = q.link->str();
  if (r.form == "bucketed") row["bucket_mb"] = r.bucket_mb;
  row["bucket_auto"] = r.automatic;
  row["gate"] = r.wrong.empty() ? "passed" : "failed";
  if (!r.wrong.empty()) row["reason"] = r.wrong;
  row.update(timing_json(r.run.timing));
  row.update({{"calls", r.calls},
              {"gradient_bytes", report.gradient_bytes},
              {"sent_bytes", r.run.volume.sent_per_rank(q.ranks)},
              {"compute_ms", report.compute_us() / 1e3},
              {"communication_ms", t.communication / 1e3},
              {"communication_share", t.communication / r.run.ledger.end},
              {"exposed_ms", t.exposed / 1e3},
              {"waited_ms", t.waited / 1e3},
              {"hidden_share", t.hidden_share()},
              {"predicted_ms", r.predicted.end / 1e3},
              {"predicted_hidden_share", totals_of(r.predicted).hidden_share()},
              {"communication_alone_ms", r.communication_alone / 1e3},
              {"larger_ms", larger_us(report, r) / 1e3},
              {"of_larger", step_us(r) / larger_us(report, r)},
              {"floor_ms", report.floor_us() / 1e3},
              {"of_roofline", report.floor_us() / step_us(r)},
              {"speedup_over_naive", speedup(report, r)},
              {"bound", bound_of(report, r)},
              {"last_loss", r.run.loss}});
  return row;
}

std::string json_page(const BenchDdpReport& report) {
  ordered_json rows = ordered_json::array();
  for (const DdpRow& r : report.rows) {
    ordered_json row = row_json(report, r);
    row["ledger"] = ledger_json(r.run.ledger);
    row["what_if"] = what_if_json(what_ifs_of(report, r));
    rows.push_back(std::move(row));
  }
  const auto number = [](double x) { return std::isfinite(x) ? ordered_json(x) : ordered_json(nullptr); };
  ordered_json best = {{"predicted_mb", number(report.best.bytes / 1e6)},
                       {"predicted_n", number(report.best.n)}};
  if (const DdpRow* r = report.fastest_bucketed()) best["measured_mb"] = r->bucket_mb;
  if (const DdpRow* r = report.fastest_bucketed_predicted()) best["replayed_mb"] = r->bucket_mb;
  return dump({{"command", "bench ddp"},
               {"device", report.device},
               {"host", host_json(report)},
               {"build_id", build_info().build_id},
               {"compute", timing_json(report.compute)},
               {"sum_cost",
                {{"overhead_us", number(1e6 * report.cost.o)},
                 {"gb_per_s", number(report.cost.w / 1e9)},
                 {"from", report.cost_from}}},
               {"bucket", best},
               {"rows", rows},
               {"remarks", remarks(report)},
               {"stopped", report.stopped}},
              2) +
         "\n";
}

}  // namespace

std::string ddp_caption(const BenchDdpReport& r) {
  const BenchDdpRequest& q = r.request;
  return fmt::format("{}, batch {}, ctx {}, {}, {} ranks on {} ({}), {} thread{} each, {}", q.size.name,
                     q.batch, q.context, name_of(q.precision), q.ranks, q.transport, r.device, r.threads,
                     r.threads == 1 ? "" : "s",
                     q.link ? fmt::format("link=modelled ({})", q.link->str()) : "no link modelled");
}

std::vector<NamedLedger> ddp_pair(const BenchDdpReport& report) {
  std::vector<NamedLedger> pair;
  for (const DdpRow* r : shown_rows(report))
    pair.push_back(
        {r->form == "bucketed" ? fmt::format("ddp:bucketed, {:.4g} MB", r->bucket_mb) : "ddp:" + r->form,
         r->run.ledger});
  return pair;
}

std::string ddp_page(const BenchDdpReport& report, PageFormat format) {
  if (format == PageFormat::json) return json_page(report);
  std::string text = format == PageFormat::csv ? "" : remark(ddp_caption(report), format) + "\n";
  text += written(main_table(report), kLeft, format);
  if (format == PageFormat::csv) return text;
  for (const std::string& line : remarks(report)) text += remark(line, format);
  for (const DdpRow* shown : shown_rows(report)) {
    const DdpRow& r = *shown;
    const std::string name = r.form == "bucketed" ? fmt::format("bucketed, {:.4g} MB", r.bucket_mb) : r.form;
    text += heading(fmt::format("{}: rank 0's ledger of the step of median length", name), format) +
            written(ledger_table(r.run.ledger), 2, format);
    if (const std::vector<WhatIf> all = what_ifs_of(report, r); !all.empty())
      text += heading(fmt::format("{}: what if", name), format) +
              written(what_if_table(all, r.run.ledger.end, report.compute_us()), 1, format);
  }
  return text;
}

std::vector<std::string> ddp_result_lines(const BenchDdpReport& report) {
  std::vector<std::string> lines;
  for (const DdpRow& r : report.rows) {
    if (r.wrong.empty())
      lines.push_back(result_line("bench ddp", row_json(report, r), r.run.timing, host_json(report)));
  }
  return lines;
}

}  // namespace kiln::cli
