#include "studies/ranks/fsdp.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/error.h"
#include "kiln/bench_check.h"
#include "studies/format.h"
#include "studies/place.h"
#include "kiln/study_tables.h"
#include "train/presets.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

// The gradient of a weight is summed after the weight's use in backward.
std::vector<GatherWindowTime> windows_with_sums(const RanksTiming& run) {
  std::vector<GatherWindowTime> windows = windows_of(run.gathers, run.ledger.backward_end);
  for (GatherWindowTime& w : windows) {
    if (w.phase != "backward") continue;
    for (const LedgerEntry& e : run.ledger.entries) {
      if (e.collective == "reduce_scatter" && e.name == w.weight) w.scatter_bytes = e.bytes;
    }
  }
  return windows;
}

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

std::string in_ms(double us) { return digits(us / 1e3); }

TextTable main_table(const BenchFsdpReport& report) {
  TextTable table = {{"prefetch", "step ms p50", "std", "comm ms", "gathers in time", "gathers exposed ms",
                      "stood still ms", "predicted stood still", "floor ms"}};
  for (const FsdpRow& r : report.rows)
    table.push_back({fmt::format("{}", r.prefetch), digits(ms(r.run.timing.p50)),
                     digits(ms(r.run.timing.std)), in_ms(totals_of(r.run.ledger).communication),
                     fmt::format("{} of {}", in_time_of(r), r.run.gathers.size()), in_ms(exposed_of(r)),
                     in_ms(std::max(0.0, r.run.ledger.end - 1e6 * report.compute.p50)),
                     report.request.link ? in_ms(r.predicted.exposed) : "-", digits(ms(report.compute.p50))});
  return table;
}

TextTable layer_table(const FsdpRow& r) {
  TextTable table = {{"layer", "phase", "in time?", "MiB", "slack us", "exposed us"}};
  for (const LayerGathers& l : by_layer(r.run.gathers))
    table.push_back({l.layer, l.phase,
                     l.in_time == l.gathers ? "yes" : fmt::format("{} of {}", l.in_time, l.gathers),
                     fine_mib(static_cast<double>(l.bytes)),
                     l.in_time > 0 ? fmt::format("{:.0f}", l.slack) : "-", fmt::format("{:.0f}", l.exposed)});
  return table;
}

ordered_json row_json(const BenchFsdpReport& report, const FsdpRow& r) {
  const BenchFsdpRequest& q = report.request;
  ordered_json row = {{"size", q.size.name},
                      {"strategy", "fsdp"},
                      {"prefetch", r.prefetch},
                      {"device", report.device},
                      {"dtype", name_of(q.precision)},
                      {"batch", q.batch},
                      {"ctx", q.context},
                      {"ranks", q.ranks},
                      {"transport", q.transport},
                      {"link", q.link ? "modelled" : "none"},
                      {"gate", r.wrong.empty() ? "passed" : "failed"}};
  if (!r.wrong.empty()) row["reason"] = r.wrong;
  if (q.link) row["link_model"] = q.link->str();
  row.update(timing_json(r.run.timing));
  row.update({{"communication_ms", totals_of(r.run.ledger).communication / 1e3},
              {"gathers", r.run.gathers.size()},
              {"gathers_in_time", in_time_of(r)},
              {"gathers_exposed_ms", exposed_of(r) / 1e3},
              {"compute_ms", ms(report.compute.p50)},
              {"floor_ms", ms(report.compute.p50)},
              {"last_loss", r.run.loss}});
  if (q.link) row["predicted_exposed_ms"] = r.predicted.exposed / 1e3;
  ordered_json layers = ordered_json::array();
  for (const LayerGathers& l : by_layer(r.run.gathers))
    layers.push_back({{"layer", l.layer},
                      {"phase", l.phase},
                      {"gathers", l.gathers},
                      {"in_time", l.in_time},
                      {"bytes", l.bytes},
                      {"slack_us", l.slack},
                      {"exposed_us", l.exposed}});
  row["layers"] = layers;
  return row;
}

}  // namespace

void check_bench_fsdp(const BenchFsdpRequest& r) {
  if (r.batch % r.ranks != 0)
    throw Error(fmt::format("--batch is {}, which does not divide into {} ranks", r.batch, r.ranks), {},
                ErrorKind::usage);
  check_study_ranks(r.transport, r.ranks);
  check_config(config_of(r.size));
}

BenchFsdpReport bench_fsdp(const BenchFsdpRequest& r,
                           const std::function<void(const std::string&)>& progress) {
  BenchFsdpReport report;
  report.request = r;
  RanksWork work = work_of(r, r.ranks, r.batch / r.ranks);
  const std::unique_ptr<Ranks> processes =
      launched_ranks(fmt::format("bench fsdp {} {}", r.size.name, r.batch));
  work.processes = processes.get();
  progress(fmt::format("{} compute alone", r.size.name));
  report.compute = time_ranks(work, compute_alone(DType::f32)).timing;
  for (const int k : r.prefetch) {
    report.stopped = r.stop && r.stop();
    if (report.stopped) break;
    progress(fmt::format("{} prefetch {}", r.size.name, k));
    StrategyOptions options;
    options.prefetch = k;
    FsdpRow row;
    row.prefetch = k;
    row.run = time_ranks(work, strategy_maker("fsdp", options));
    if (row.run.here && !row.run.timing.samples.empty()) report.rows.push_back(std::move(row));
  }
  progress("");
  if (processes) processes->finish();
  for (FsdpRow& row : report.rows) {
    const FsdpRow& first = report.rows.front();
    row.wrong = wrong_loss(row.run, first.run, fmt::format("prefetch {}", first.prefetch));
    if (r.link)
      row.predicted = replay_gathers(windows_with_sums(report.rows.front().run), row.prefetch, r.ranks,
                                     seconds_on(*r.link, r.ranks));
  }
  const MeasuredPlace place = find_place(r.device, work.plan.options.threads);
  report.device = r.device.str();
  report.device_name = place.name;
  report.isa = place.isa;
  report.threads = place.threads;
  return report;
}

std::string fsdp_caption(const BenchFsdpReport& r) {
  const BenchFsdpRequest& q = r.request;
  return fmt::format("{}, batch {}, ctx {}, {}, {} ranks on {}, {} thread{} each, {}", q.size.name, q.batch,
                     q.context, name_of(q.precision), q.ranks, q.transport, r.threads,
                     r.threads == 1 ? "" : "s",
                     q.link ? fmt::format("link=modelled ({})", q.link->str()) : "no link modelled");
}

std::string fsdp_page(const BenchFsdpReport& report, PageFormat format) {
  if (format == PageFormat::json) {
    ordered_json rows = ordered_json::array();
    for (const FsdpRow& r : report.rows) rows.push_back(row_json(report, r));
    return dump({{"command", "bench fsdp"},
                 {"device", report.device},
                 {"host", host_json(report)},
                 {"build_id", build_info().build_id},
                 {"rows", rows},
                 {"stopped", report.stopped}},
                2) +
           "\n";
  }
  if (format == PageFormat::csv) return written(main_table(report), 0, format);
  std::string text = remark(fsdp_caption(report), format) + "\n" + written(main_table(report), 0, format);
  for (const FsdpRow& r : report.rows)
    text += heading(fmt::format("prefetch {}: did the gather arrive in time?", r.prefetch), format) +
            written(layer_table(r), 3, format);
  for (const FsdpRow& r : report.rows) {
    if (!r.wrong.empty())
      text += remark(fmt::format("prefetch {} is WRONG: {}", r.prefetch, r.wrong), format);
  }
  if (report.stopped) text += remark("stopped before its last row", format);
  return text;
}

std::vector<std::string> fsdp_result_lines(const BenchFsdpReport& report) {
  std::vector<std::string> lines;
  for (const FsdpRow& r : report.rows) {
    if (!r.wrong.empty()) continue;
    lines.push_back(result_line("bench fsdp", row_json(report, r), r.run.timing, host_json(report)));
  }
  return lines;
}

}  // namespace kiln::cli
