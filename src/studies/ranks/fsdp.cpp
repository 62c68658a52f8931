#include "studies/ranks/fsdp.h"

#include <fmt/format.h>

#include "base/error.h"
#include "studies/place.h"
#include "studies/variant_check.h"
#include "train/presets.h"

namespace kiln {
namespace {

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

}  // namespace

void check_bench_fsdp(const BenchFsdpRequest& r) {
  if (r.batch % r.ranks != 0)
    throw Error(fmt::format("--batch is {}, which does not divide into {} ranks", r.batch, r.ranks), {},
                ErrorKind::usage);
  check_study_ranks(r, r.ranks);
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
  check_ranks_fit(work, strategy_maker("fsdp", {}));
  check_rank_step(work, r.folder, progress);
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
    FsdpRow& first = report.rows.front();
    if (&row != &first)
      compare_losses({row, row.run}, {first, first.run}, fmt::format("prefetch {}", first.prefetch));
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

}  // namespace kiln
