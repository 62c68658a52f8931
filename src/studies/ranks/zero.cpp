#include "studies/ranks/zero.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "device/device_room.h"
#include "perf/comm/overlap_replay.h"
#include "studies/place.h"
#include "studies/variant_check.h"
#include "train/memory_prediction.h"
#include "train/presets.h"

namespace kiln {
namespace {

// Threads of one process share the machine's memory, ranks of one GPU the GPU's.
std::string why_no_room(const BenchZeroRequest& r, const ZeroRow& row) {
  if (!r.measure) return "not asked for";
  const double needed = static_cast<double>(row.planned.memory.after_step.peak_total) * row.ranks;
  const std::size_t free_memory = free_memory_on(r.device);
  if (needed <= static_cast<double>(free_memory)) return {};
  return fmt::format("{} ranks need {} here, {} are available", row.ranks,
                     human({static_cast<std::size_t>(needed)}), human({free_memory}));
}

MakeRankStrategy maker_of(const BenchZeroRequest& r, const std::string& stage) {
  return strategy_maker(strategy_of_stage(stage), {r.bucket_mb, DType::f32});
}

ZeroRow planned_row(const BenchZeroRequest& r, const RanksWork& work, int ranks, const std::string& stage,
                    int64_t parameters) {
  ZeroRow row;
  row.stage = stage;
  row.ranks = ranks;
  row.planned = plan_ranks(work, maker_of(r, stage), /*uneven=*/stage == "1:simple");
  const bool narrow = layout_for(r.precision, work.spec.step, ranks).narrow_grads;
  row.theory = zero_theory(stage, policy_of(r.precision, narrow), parameters, ranks);
  row.not_measured = why_no_room(r, row);
  if (!row.not_measured.empty()) row.set(RowStatus::modelled, row.not_measured);
  return row;
}

// Every stage twice, the second time in the opposite order, each with half of the steps: a machine that gets
// slower meanwhile, or faster, does so to the first as much as to the last.
void measure_there_and_back(const BenchZeroRequest& r, RanksWork work, std::vector<ZeroRow>& rows,
                            const std::function<void(const std::string&)>& progress) {
  std::vector<ZeroRow*> measured;
  for (ZeroRow& row : rows) {
    if (row.not_measured.empty()) measured.push_back(&row);
  }
  if (measured.empty()) return;
  check_rank_step(work, r.folder, progress);
  const int visits = measured.size() > 1 ? 2 : 1;
  work.steps = (r.steps + visits - 1) / visits;
  RanksTiming alone;
  for (int visit = 0; visit < visits; ++visit) {
    progress(fmt::format("{} compute alone, {} ranks", r.size.name, work.plan.ranks));
    add_round(alone, time_ranks(work, compute_alone(DType::f32)));
    for (ZeroRow* row : measured) {
      throw_if_stopped(r.stop);
      progress(fmt::format("{} stage {}, {} rank{}", r.size.name, row->stage, row->ranks,
                           row->ranks == 1 ? "" : "s"));
      RanksTiming round = time_ranks(work, maker_of(r, row->stage));
      if (!row->measured) row->measured.emplace();
      add_round(*row->measured, std::move(round));
    }
    std::reverse(measured.begin(), measured.end());
  }
  ZeroRow* first = nullptr;
  for (ZeroRow& row : rows) {
    if (!row.measured) continue;
    row.compute = alone.timing.p50;
    if (first == nullptr)
      first = &row;
    else
      compare_losses({row, *row.measured}, {*first, *first->measured}, fmt::format("stage {}", first->stage));
  }
}

}  // namespace

double ZeroRow::state_of(const MemoryStats& m) {
  double bytes = 0;
  for (const Tag t : {Tag::param, Tag::master, Tag::grad, Tag::optim})
    bytes += static_cast<double>(m.live[t]);
  return bytes;
}

std::optional<double> ZeroRow::state() const {
  return measured ? std::optional(state_of(measured->memory.after_step)) : std::nullopt;
}

std::string strategy_of_stage(std::string_view stage) {
  if (stage == "0") return "ddp:bucketed";
  if (stage == "3") return "fsdp";
  return fmt::format("zero{}", stage);
}

const ZeroRow* BenchZeroReport::unsharded(int ranks) const {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const ZeroRow& r) { return r.stage == "0" && r.ranks == ranks; });
  return found == rows.end() ? nullptr : &*found;
}

std::optional<double> BenchZeroReport::predicted_us(const ZeroRow& row) const {
  if (!request.link || !row.measured || row.compute <= 0) return {};
  const CallSeconds seconds = seconds_on(*request.link, row.ranks);
  double beside = 0, alone = 0;
  for (const LedgerEntry& e : row.planned.ledger.entries)
    (e.bucket ? beside : alone) += 1e6 * seconds(e.collective, e.bytes);
  return std::max(1e6 * row.compute, beside) + alone;
}

std::optional<double> BenchZeroReport::floor_us(const ZeroRow& row) const {
  if (!row.measured || row.compute <= 0) return {};
  const double wire = request.link ? 1e6 * row.theory.sent / request.link->bandwidth : 0;
  return std::max(1e6 * row.compute, wire);
}

void check_bench_zero(const BenchZeroRequest& r) {
  if (r.device.is_meta() && r.measure)
    throw Error("meta runs no kernels, so there is nothing to measure", "say --measure off",
                ErrorKind::usage);
  for (const int n : r.ranks) {
    check_study_ranks(r, n);
    (void)batch_of_rank(r, n);
  }
  check_config(config_of(r.size));
}

BenchZeroReport bench_zero(const BenchZeroRequest& r,
                           const std::function<void(const std::string&)>& progress) {
  BenchZeroReport report;
  const LoadWatch load(r.device);
  report.request = r;
  report.parameters = count_params(config_of(r.size)).total();
  const std::unique_ptr<Ranks> processes =
      launched_ranks(fmt::format("bench zero {} {}", r.size.name, batch_text(r)));
  for (const int ranks : r.ranks) {
    RanksWork work = work_of(r, ranks, batch_of_rank(r, ranks));
    work.processes = processes.get();
    std::vector<ZeroRow> rows;
    report.stopped = !done_unless_stopped([&] {
      for (const std::string& stage : r.stages) {
        throw_if_stopped(r.stop);
        progress(fmt::format("{} stage {}, {} rank{}: planning", r.size.name, stage, ranks,
                             ranks == 1 ? "" : "s"));
        rows.push_back(planned_row(r, work, ranks, stage, report.parameters));
      }
      measure_there_and_back(r, work, rows, progress);
    });
    if (report.stopped) break;
    for (ZeroRow& row : rows) {
      if (!row.measured || row.measured->here) report.rows.push_back(std::move(row));
    }
  }
  progress("");
  const bool measured = std::any_of(report.rows.begin(), report.rows.end(),
                                    [](const ZeroRow& row) { return row.measured.has_value(); });
  if (measured) report.load = load.load();
  if (processes) processes->finish();
  const MeasuredPlace place =
      find_place(r.device.is_meta() ? Device::cpu() : r.device, threads_per_rank(r.threads, r.ranks.back()));
  report.device = r.device.str();
  report.device_name = place.name;
  report.isa = place.isa;
  report.threads = place.threads;
  return report;
}

}  // namespace kiln
