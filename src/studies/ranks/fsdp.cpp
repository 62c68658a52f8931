#include "studies/ranks/fsdp.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "device/device_room.h"
#include "dist/launch/rank_agreement.h"
#include "perf/comm/link_fit.h"
#include "perf/comm/prefetch_depth.h"
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

// As modelled, or fitted to a run's own calls; nothing where those do not tell.
CallSeconds seconds_of(const BenchFsdpRequest& r, const RanksTiming& run, std::string& from) {
  if (r.link) return seconds_on(*r.link, r.ranks);
  std::vector<Point> points;
  for (const LedgerEntry& e : run.ledger.entries) {
    const double whole = static_cast<double>(e.bytes) * (e.collective == "all_gather" ? r.ranks : 1);
    points.push_back({whole, (e.end - e.start) / 1e6});
  }
  const std::optional<LinkFit> fit = fit_link(points);
  if (!fit) return nullptr;
  from = "this run's own calls";
  return [f = *fit, n = r.ranks](std::string_view what, int64_t bytes) {
    return f.seconds(static_cast<double>(bytes) * (what == "all_gather" ? n : 1));
  };
}

// A process measures its own uses: all take what the first has chosen.
int agreed(const RanksWork& work, int mine) {
  if (work.processes == nullptr) return mine;
  int all = mine;
  work.processes->run(work.plan.options, work.plan.comm, [&](RankContext& ctx, Communicator& comm) {
    const double number = mine;
    all = static_cast<int>(all_gather_numbers(ctx, comm, {&number, 1}, "prefetch depth").front().front());
  });
  return all;
}

// What the predictions start from: a run at depth 1, or the first row's where its depth is given.
struct FirstRun {
  std::vector<GatherWindowTime> windows;
  CallSeconds seconds = nullptr;
};

void learn(FirstRun& first, BenchFsdpReport& report, const RanksTiming& run) {
  if (!first.windows.empty() || run.gathers.empty()) return;
  first.windows = windows_with_sums(run);
  first.seconds = seconds_of(report.request, run, report.link_from);
}

void choose_depth(FsdpRow& row, FirstRun& first, BenchFsdpReport& report, const RanksWork& work,
                  const std::function<void(const std::string&)>& progress) {
  const BenchFsdpRequest& r = report.request;
  if (first.windows.empty()) {
    progress(fmt::format("{} uses of weights", r.size.name));
    learn(first, report, time_ranks(work, strategy_maker("fsdp", {})));
  }
  row.automatic = true;
  row.prefetch = StrategyOptions().prefetch;
  if (first.seconds) {
    StrategyOptions none;
    none.prefetch = 0;
    const double peak =
        static_cast<double>(plan_ranks(work, strategy_maker("fsdp", none)).memory.after_step.peak_total);
    const int sharing = r.device.type == DeviceType::cpu ? r.ranks : 1;
    const double free_bytes = static_cast<double>(free_memory_on(r.device)) / sharing - peak;
    const PrefetchChoice choice = choose_prefetch(first.windows, r.ranks, first.seconds,
                                                  static_cast<int64_t>(std::max(0.0, free_bytes)));
    row.prefetch = choice.best.depth;
    row.why = choice.why();
  }
  row.prefetch = agreed(work, row.prefetch);
}

}  // namespace

void check_bench_fsdp(const BenchFsdpRequest& r) {
  if (r.batch % r.ranks != 0)
    throw Error(fmt::format("--batch is {}, which does not divide into {} ranks", r.batch, r.ranks), {},
                ErrorKind::usage);
  check_study_ranks(r, r.ranks);
  check_config(config_of(r.size));
}

namespace {

// Each prefetch has half of its steps in each of two rounds, so that a machine that slows down slows all of
// them.
void time_in_turns(const BenchFsdpRequest& r, RanksWork& work, FirstRun& first, BenchFsdpReport& report,
                   const std::function<void(const std::string&)>& progress) {
  RanksTiming alone;
  std::vector<FsdpRow> rows;
  for (const int k : r.prefetch) rows.emplace_back().prefetch = k;
  const int rounds = std::min(2, r.steps);
  for (int round = 0; round < rounds && !report.stopped; ++round) {
    work.steps = r.steps / rounds + (round < r.steps % rounds ? 1 : 0);
    progress(fmt::format("{} compute alone, round {} of {}", r.size.name, round + 1, rounds));
    add_round(alone, time_ranks(work, compute_alone(DType::f32)));
    for (FsdpRow& row : rows) {
      report.stopped = report.stopped || (r.stop && r.stop());
      if (report.stopped) break;
      if (row.prefetch == kAutoPrefetch) choose_depth(row, first, report, work, progress);
      progress(fmt::format("{} prefetch {}, round {} of {}", r.size.name, row.prefetch, round + 1, rounds));
      StrategyOptions options;
      options.prefetch = row.prefetch;
      add_round(row.run, time_ranks(work, strategy_maker("fsdp", options)));
      learn(first, report, row.run);
    }
  }
  report.compute = alone.timing;
  for (FsdpRow& row : rows) {
    if (row.run.here && !row.run.timing.samples.empty()) report.rows.push_back(std::move(row));
  }
}

}  // namespace

BenchFsdpReport bench_fsdp(const BenchFsdpRequest& r,
                           const std::function<void(const std::string&)>& progress) {
  BenchFsdpReport report;
  const LoadWatch load(r.device);
  report.request = r;
  RanksWork work = work_of(r, r.ranks, r.batch / r.ranks);
  const std::unique_ptr<Ranks> processes =
      launched_ranks(fmt::format("bench fsdp {} {}", r.size.name, r.batch));
  work.processes = processes.get();
  check_ranks_fit(work, strategy_maker("fsdp", {}));
  check_rank_step(work, r.folder, progress);
  FirstRun first;
  time_in_turns(r, work, first, report, progress);
  progress("");
  report.load = load.load();
  if (processes) processes->finish();
  for (FsdpRow& row : report.rows) {
    FsdpRow& other = report.rows.front();
    if (&row != &other)
      compare_losses({row, row.run}, {other, other.run}, fmt::format("prefetch {}", other.prefetch));
    if (first.seconds) row.predicted = replay_gathers(first.windows, row.prefetch, r.ranks, first.seconds);
  }
  const MeasuredPlace place = find_place(r.device, work.plan.options.threads);
  report.device = r.device.str();
  report.device_name = place.name;
  report.isa = place.isa;
  report.threads = place.threads;
  return report;
}

}  // namespace kiln
