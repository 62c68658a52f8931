#include "studies/ranks/ddp.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/plain_number.h"
#include "dist/launch/transports.h"
#include "dist/strategy/ddp.h"
#include "rows/result_log.h"
#include "studies/place.h"
#include "studies/variant_check.h"
#include "train/presets.h"

namespace kiln {
namespace {

std::vector<DdpRow> planned_rows(const BenchDdpRequest& r) {
  std::vector<DdpRow> rows;
  for (const std::string& form : r.forms) {
    for (const double bucket : form == "bucketed" ? r.buckets : std::vector<double>{0}) {
      DdpRow row;
      row.form = form;
      row.bucket_mb = bucket;
      row.automatic = bucket == kBestBucket;
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

// What a sum over the ranks costs: as modelled, as measured by `bench allreduce`, or, where neither is there,
// as this run's own calls took.
void find_cost(BenchDdpReport& report) {
  const BenchDdpRequest& r = report.request;
  if (r.link) {
    report.cost = sum_cost(*r.link, r.ranks);
    report.cost_from = "the modelled link";
    return;
  }
  if (const auto stored = stored_link(read_results(r.out).rows, r.transport, r.device.str(), r.ranks)) {
    report.cost = sum_cost(*stored);
    report.cost_from = fmt::format("rows of bench allreduce in {}", r.out);
    return;
  }
  std::vector<Point> points;
  for (const DdpRow& row : report.rows) {
    for (const LedgerEntry& e : row.run.ledger.entries)
      points.push_back({static_cast<double>(e.bytes), (e.end - e.start) / 1e6});
  }
  if (const auto own = fit_link(points)) {
    report.cost = sum_cost(*own);
    report.cost_from = "this run's own calls; bench allreduce would measure them alone";
  }
}

// The gradients' sums are the same numbers in every form: on the CPU to the bit, else to rounding.
void check_losses(BenchDdpReport& report) {
  DdpRow* first = nullptr;
  for (DdpRow& row : report.rows) {
    if (std::ssize(row.run.timing.samples) != int64_t{report.request.steps} * report.request.rounds) continue;
    if (first == nullptr) {
      first = &row;
      continue;
    }
    compare_losses({row, row.run}, {*first, first->run}, first->form);
  }
}

void predict(BenchDdpReport& report) {
  const CallSeconds seconds = report.call_seconds();
  for (DdpRow& row : report.rows) {
    ComputeTimeline timeline = report.timeline;
    for (const LedgerEntry& e : row.run.ledger.entries) {
      if (!e.bucket) timeline.others.push_back(e);
      row.calls += e.bucket;
    }
    row.predicted = replay(timeline, row.options, seconds);
    row.communication_alone = communication_alone(timeline, row.options, seconds);
  }
}

void note_compute(BenchDdpReport& report, const RanksTiming& alone) {
  report.compute = alone.timing;
  report.timeline = alone.compute;
  report.gradient_bytes = 0;
  for (const ReadyGradient& g : report.timeline.gradients) report.gradient_bytes += g.bytes;
}

void choose_bucket(BenchDdpReport& report, DdpRow& row) {
  const BenchDdpRequest& r = report.request;
  if (row.automatic) {
    find_cost(report);
    if (find_transport(r.transport).processes && report.cost_from.starts_with("this run"))
      report.cost_from.clear();  // each process would make something else of its own calls
    if (report.cost_from.empty())
      throw Error(
          "--bucket-mb is 'auto', and nothing is known of the link",
          fmt::format("measure it with `kiln bench allreduce --ranks {} --transport {}`, or model one "
                      "with --link",
                      r.ranks, r.transport),
          ErrorKind::unavailable);
    row.bucket_mb = best_bucket(static_cast<double>(report.gradient_bytes), report.cost).bytes / 1e6;
  }
  row.options = DdpStrategy::form(row.form, 1e6 * row.bucket_mb, r.wire);
}

const DdpRow* least(const std::vector<DdpRow>& rows, double (*of)(const DdpRow&)) {
  const DdpRow* best = nullptr;
  for (const DdpRow& r : rows) {
    if (r.form == "bucketed" && (best == nullptr || of(r) < of(*best))) best = &r;
  }
  return best;
}

}  // namespace

CallSeconds BenchDdpReport::call_seconds() const {
  if (request.link) return seconds_on(*request.link, request.ranks);
  return [c = cost](std::string_view, int64_t bytes) { return c.o + static_cast<double>(bytes) / c.w; };
}

double BenchDdpReport::floor_us() const {
  return std::max(compute_us(), 1e6 * static_cast<double>(gradient_bytes) / cost.w);
}

const DdpRow* BenchDdpReport::naive() const {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [](const DdpRow& r) { return r.form == "naive"; });
  return found == rows.end() ? nullptr : &*found;
}

const DdpRow* BenchDdpReport::fastest_bucketed() const {
  return least(rows, [](const DdpRow& r) { return r.run.timing.p50; });
}

const DdpRow* BenchDdpReport::fastest_bucketed_predicted() const {
  return least(rows, [](const DdpRow& r) { return r.predicted.end; });
}

void check_bench_ddp(const BenchDdpRequest& r) {
  if (r.device.is_meta())
    throw Error("meta runs no kernels, so there is nothing to time", "use --device cpu or cuda",
                ErrorKind::usage);
  if (r.batch % r.ranks != 0)
    throw Error(fmt::format("--batch is {}, which does not divide into {} ranks", r.batch, r.ranks),
                fmt::format("take {} or {}", std::max<int64_t>(1, r.batch / r.ranks) * r.ranks,
                            (r.batch / r.ranks + 1) * r.ranks),
                ErrorKind::usage);
  check_study_ranks(r, r.ranks);
  check_config(config_of(r.size));
}

BenchDdpReport bench_ddp(const BenchDdpRequest& r, const std::function<void(const std::string&)>& progress) {
  BenchDdpReport report;
  const LoadWatch load(r.device);
  report.request = r;
  RanksWork work = work_of(r, r.ranks, r.batch / r.ranks);
  const std::unique_ptr<Ranks> processes =
      launched_ranks(fmt::format("bench ddp {} {}", r.size.name, r.batch));
  work.processes = processes.get();
  check_ranks_fit(work, strategy_maker("ddp:naive", {.wire = r.wire}));  // before the gate takes memory
  check_rank_step(work, r.folder, progress);
  RanksTiming alone;
  std::vector<DdpRow> rows = planned_rows(r);
  for (int round = 0; round < r.rounds && !report.stopped; ++round) {
    progress(fmt::format("{} compute alone, round {} of {}", r.size.name, round + 1, r.rounds));
    add_round(alone, time_ranks(work, compute_alone(r.wire)));
    if (round == 0) note_compute(report, alone);
    for (DdpRow& row : rows) {
      report.stopped = report.stopped || (r.stop && r.stop());
      if (report.stopped) break;
      if (round == 0) choose_bucket(report, row);
      progress(fmt::format("{} {}{}, round {} of {}", r.size.name, row.form,
                           row.form == "bucketed" ? fmt::format(" of {} MB", plain(row.bucket_mb, 3)) : "",
                           round + 1, r.rounds));
      add_round(row.run, time_ranks(work, strategy_maker("ddp:" + row.form, {row.bucket_mb, r.wire})));
    }
  }
  note_compute(report, alone);
  for (DdpRow& row : rows) {
    if (row.run.here && !row.run.timing.samples.empty()) report.rows.push_back(std::move(row));
  }
  progress("");
  report.load = load.load();
  if (processes) processes->finish();
  find_cost(report);
  report.best = best_bucket(static_cast<double>(report.gradient_bytes), report.cost);
  check_losses(report);
  predict(report);
  const MeasuredPlace place = find_place(r.device, work.plan.options.threads);
  report.device = r.device.str();
  report.device_name = place.name;
  report.isa = place.isa;
  report.threads = place.threads;
  return report;
}

}  // namespace kiln
