#include "studies/attention/attention.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/device_room.h"
#include "device/out_of_memory.h"
#include "ops/attention/tile_choice.h"
#include "ops/renamed.h"
#include "ops/select.h"
#include "studies/attention/check.h"
#include "studies/place.h"
#include "studies/roofline.h"

namespace kiln {
namespace {

constexpr const char* kAttention = AttentionOp::kName;

// One after the other, so their times add up.
double sum_of_passes(AttentionPass p, const Rates& best, double cache,
                     const std::function<Cost(AttentionPass)>& cost) {
  if (p != AttentionPass::both) return kiln::roofline_ms(cost(p), best, cache);
  return kiln::roofline_ms(cost(AttentionPass::forward), best, cache) +
         kiln::roofline_ms(cost(AttentionPass::backward), best, cache);
}

// What every context is made with, but for the variant.
RankOptions common_rank(const AttentionRequest& request) {
  RankOptions o = options_for(request.device, request.threads, request.seed);
  o.memory_cap = request.memory_cap;
  o.attention_choices = request.choices;
  return o;
}

// A variant by its old name, as it is requested now.
std::string today(const std::string& variant) {
  const std::string_view name = current_variant(kAttention, variant);
  return name.empty() ? "auto" : std::string(name);
}

RankOptions with_variant(RankOptions rank, const std::string& variant) {
  if (variant != "auto") rank.variants.set(kAttention, variant);
  return rank;
}

// What goes wrong in `work` is what the row says then.
void attempt_row(AttentionRow& row, const std::function<void(OutOfMemory&)>& work) {
  OutOfMemory full;
  try {
    work(full);
  } catch (const Error& error) {
    row.set(full.happened ? RowStatus::oom : status_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    row.set(RowStatus::oom, "out of memory on the host");
  }
}

void check_attention_row(const AttentionRequest& request, const RankOptions& rank,
                         AttentionReferences& references, AttentionRow& row) {
  constexpr double kSlowCall = 10;  // seconds
  throw_if_stopped(request.stop);
  const SampledReference& reference = references.of(row.cell);
  if (request.skip_slow && request.device.type == DeviceType::cpu && row.variant == references.baseline()) {
    const double seconds = baseline_seconds(reference);
    if (seconds > kSlowCall) {
      return row.set(
          RowStatus::skipped,
          fmt::format("one call would take about {:.0f} s; --variant {} times it", seconds, row.variant));
    }
  }
  attempt_row(row, [&](OutOfMemory& full) {
    BenchRow judged;
    RankContext ctx(with_variant(rank, row.asked()));
    ctx.allocator().add_observer(&full);
    const bool right = check_variant(ctx, reference, judged);
    row.error = judged.error;
    row.allowed = judged.allowed;
    row.checked_queries = judged.checked_rows;
    row.all_queries = judged.all_rows;
    if (!right) return row.fail_gate(judged.reason);
    row.gate = Gate::passed;
  });
}

// In a context of its own: what a check leaves cached is not in the way of the bytes measured.
void time_row(const AttentionRequest& request, const RankOptions& rank, int visits, AttentionRow& row) {
  throw_if_stopped(request.stop);
  attempt_row(row, [&](OutOfMemory& full) {
    RankContext ctx(with_variant(rank, row.asked()));
    ctx.allocator().add_observer(&full);
    AttentionClock clock = request.clock;
    clock.timing = for_each_visit(clock.timing, visits);
    AttentionTimes times = time_attention(ctx, row.cell, request.passes, clock);
    row.measured = times.memory;
    for (std::size_t i = 0; i < request.passes.size(); ++i) {
      std::optional<Timing>& timing = row.timings[static_cast<std::size_t>(request.passes[i])];
      timing = timing ? merged(*timing, times.passes[i]) : std::move(times.passes[i]);
    }
  });
  if (!row.ok()) row.timings = {};
}

// Does it fit, and does it compute what it should?
void check_row(const AttentionRequest& request, const RankOptions& rank, AttentionReferences& references,
               AttentionRow& row) {
  if (request.device.is_meta() && request.memory_cap.value == SIZE_MAX) {
    row.status = RowStatus::modelled;
    return;
  }
  row.free_memory = request.device.is_meta()
                        ? request.memory_cap.value
                        : std::min(request.memory_cap.value, free_memory_on(request.device));
  const std::size_t needed = row.plan.memory.peak + request.clock.flush;
  if (needed > row.free_memory)
    return row.set(RowStatus::oom, cat("it needs ", human({needed}), " of memory; ", human({row.free_memory}),
                                       " are available"));
  if (request.device.is_meta()) {
    row.status = RowStatus::modelled;
    return;
  }
  check_attention_row(request, rank, references, row);
}

// The variants of a cell twice, the second time in the opposite order: a machine that gets slower meanwhile,
// or faster, does so to the first as much as to the last.
void time_there_and_back(const AttentionRequest& request, const RankOptions& rank,
                         std::vector<AttentionRow>& rows,
                         const std::function<void(const std::string&)>& progress) {
  std::vector<AttentionRow*> timed;
  for (AttentionRow& row : rows) {
    if (row.ok()) timed.push_back(&row);
  }
  const int visits = timed.size() > 1 ? 2 : 1;
  for (int visit = 0; visit < visits; ++visit) {
    for (AttentionRow* row : timed) {
      progress(cat(row->cell.str(), ": ", row->names()));
      if (row->ok()) time_row(request, rank, visits, *row);
    }
    std::reverse(timed.begin(), timed.end());
  }
}

// Each variant of a cell once, under the name it runs by; one that cannot run is a row with the reason.
std::vector<AttentionRow> rows_of(const AttentionRequest& request, const RankOptions& rank,
                                  const AttentionCell& cell) {
  std::vector<AttentionRow> rows;
  for (const std::string& asked : request.variants) {
    const std::string wanted = today(asked);
    AttentionRow row;
    row.cell = cell;
    row.variant = wanted;
    row.automatic = wanted == "auto";
    try {
      row.plan = plan_attention(cell, with_variant(rank, wanted));
      row.variant = row.plan.variant;
      if (row.plan.backward_variant != row.variant) row.backward_variant = row.plan.backward_variant;
      if (request.device.target == DeviceType::cuda && !tile_candidates(row.variant, cell.problem()).empty())
        row.tiles = chosen_tiles(request.choices, row.variant, cell.problem()).str();
    } catch (const Error& error) {
      row.set(error.kind() == ErrorKind::unavailable ? RowStatus::unsupported : RowStatus::failed,
              error.what());
    }
    const auto same = std::find_if(rows.begin(), rows.end(),
                                   [&](const AttentionRow& r) { return r.names() == row.names(); });
    if (same == rows.end()) {
      rows.push_back(std::move(row));
    } else {
      same->automatic = same->automatic || row.automatic;
    }
  }
  return rows;
}

void set_speedups(std::vector<AttentionRow>& rows, const std::string& baseline) {
  for (AttentionRow& row : rows) {
    for (const AttentionRow& naive : rows) {
      if (naive.variant != baseline || !(naive.cell == row.cell)) continue;
      for (std::size_t p = 0; p < row.timings.size(); ++p) {
        if (!row.timings[p] || !naive.timings[p]) continue;
        row.speedups[p] = naive.timings[p]->p50 / row.timings[p]->p50;
        if (row.variant != baseline)
          row.versus[p] = compare(naive.timings[p]->samples, row.timings[p]->samples);
      }
    }
  }
}

constexpr int64_t kLong = 4096;

// small_m takes a few queries and no more: its memory has no growth to fit.
bool takes_long_sequences(const RankOptions& rank, const AttentionRow& row) {
  AttentionCell cell = row.cell;
  cell.seq = 2 * kLong;
  try {
    (void)plan_attention(cell, with_variant(rank, row.asked()));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::unavailable) return false;
    throw;
  }
  return true;
}

// From two lengths; the rounding of small blocks is far below what long sequences take.
std::vector<ScalingFit> scaling_fits_of(const RankOptions& rank, const std::vector<AttentionRow>& rows) {
  std::vector<ScalingFit> scaling_fits;
  for (const AttentionRow& row : rows) {
    if (!row.planned()) continue;
    const auto same = [&](const ScalingFit& law) {
      AttentionCell cell = law.cell;
      cell.seq = row.cell.seq;
      return law.variant == row.names() && cell == row.cell;
    };
    if (std::any_of(scaling_fits.begin(), scaling_fits.end(), same)) continue;
    AttentionCell cell = row.cell;
    auto bytes_at = [&](int64_t seq) {
      cell.seq = seq;
      return static_cast<double>(
          plan_attention(cell, with_variant(rank, row.asked())).memory.before_backward);
    };
    if (!takes_long_sequences(rank, row)) continue;
    constexpr double T = kLong;
    const double once = bytes_at(kLong), twice = bytes_at(2 * kLong);
    const double square = (twice - 2 * once) / (2 * T * T);
    scaling_fits.push_back({row.names(), row.cell, once / T - square * T, square});
  }
  return scaling_fits;
}

void set_place(const AttentionRequest& request, AttentionReport& report) {
  std::vector<DType> dtypes;
  for (const AttentionCell& cell : request.cells) {
    if (std::find(dtypes.begin(), dtypes.end(), cell.dtype) == dtypes.end()) dtypes.push_back(cell.dtype);
  }
  const MeasuredPlace place = measure_place(request.device, request.threads, dtypes);
  report.device_name = place.name;
  report.isa = place.isa;
  report.threads = place.threads;
  report.copy = place.ceilings.copy;
  for (DType t : dtypes) {
    const NamedRate& rate = place.ceilings.flops.at(t);
    report.flops.push_back({cat(name_of(t), " ", rate.name), rate.per_second});
  }
  for (AttentionRow& row : report.rows)
    row.best = {place.ceilings.flops.at(row.cell.dtype).per_second, report.copy};
}

}  // namespace

double AttentionRow::own_roofline_ms(AttentionPass p, double cache) const {
  return sum_of_passes(p, best, cache, [&](AttentionPass one) { return plan.cost(one); });
}

double AttentionRow::roofline_ms(AttentionPass p, double cache) const {
  return sum_of_passes(p, best, cache, [&](AttentionPass one) { return cell.least(one); });
}

const AttentionRow* AttentionReport::first(RowStatus status) const {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const AttentionRow& r) { return r.status == status; });
  return found == rows.end() ? nullptr : &*found;
}

std::size_t flush_bytes(const Device& device) {
  if (device.is_meta()) return 0;
  constexpr double kFarOver = 4;    // a cache does not forget in order
  constexpr double kMost = 0x1p28;  // of a CPU, whose cache may be shared by a hundred cores
  const double bytes = kFarOver * cache_bytes(device);
  return static_cast<std::size_t>(device.type == DeviceType::cpu ? std::min(kMost, bytes) : bytes);
}

void check_attention_request(const AttentionRequest& request) {
  const std::vector<OpListing> ops = list_ops();
  std::vector<std::string> names = {"auto"};
  for (const VariantListing& v : find_op(ops, kAttention).variants) names.push_back(v.name);
  for (const std::string& wanted : request.variants) {
    if (std::find(names.begin(), names.end(), today(wanted)) == names.end())
      throw_no_variant(kAttention, wanted, names, {});
  }
}

AttentionReport bench_attention(const AttentionRequest& request,
                                const std::function<void(const std::string&)>& progress) {
  AttentionReport report;
  const LoadWatch load(request.device);
  report.command = request.command;
  report.table = request.table;
  report.device = request.device.str();
  report.planned = request.device.is_meta();
  report.passes = request.passes;
  report.clock = request.clock;
  report.datasheet = request.datasheet;
  const RankOptions rank = common_rank(request);
  AttentionReferences references(request.device, request.threads, request.seed);
  for (const AttentionCell& cell : request.cells) {
    if (report.stopped) break;
    std::vector<AttentionRow> rows = rows_of(request, rank, cell);
    report.stopped = !done_unless_stopped([&] {
      for (AttentionRow& row : rows) {
        throw_if_stopped(request.stop);
        progress(cat(cell.str(), ": ", row.names(), ", checking"));
        if (row.ok()) check_row(request, rank, references, row);
      }
      time_there_and_back(request, rank, rows, progress);
    });
    for (AttentionRow& row : rows) {
      const bool measured =
          std::any_of(row.timings.begin(), row.timings.end(), [](const auto& t) { return t; });
      if (!report.stopped || measured) report.rows.push_back(std::move(row));
    }
  }
  if (request.scaling_fits) report.scaling_fits = scaling_fits_of(rank, report.rows);
  if (!report.planned) {
    progress("measuring ceilings");
    set_place(request, report);
    report.load = load.load();
  }
  set_speedups(report.rows, references.baseline());
  progress("");
  return report;
}

}  // namespace kiln
