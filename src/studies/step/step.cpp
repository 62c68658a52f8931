#include "studies/step/step.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/plain_number.h"
#include "device/device_room.h"
#include "device/out_of_memory.h"
#include "perf/model/step_predictor.h"
#include "studies/gate/gate.h"
#include "studies/place.h"
#include "studies/step/step_policy.h"
#include "studies/variant_check.h"
#include "train/memory_prediction.h"
#include "train/presets.h"
#include "train/run/tuned.h"
#include "train/step_choice.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void no_memory(StepRow& row, const RankOptions& rank, std::string why) {
  row.set(RowStatus::oom, std::move(why));
  row.largest_batch = largest_batch(row.spec, rank, row.free_memory);
  if (row.spec.mode != StepMode::full || row.free_memory == 0) return;
  const StepClock clock = clock_of("", rank.device, rank.threads, policy_of(row.spec.precision).compute);
  const MemoryRequest step{.model = row.spec.model,
                           .layout = layout_for(row.spec.precision, row.spec.step),
                           .step = row.spec.step};
  row.ways_out = ways_text(ways_out(step, rank, row.free_memory, clock), clock);
}

Timing timing_of(std::vector<double> samples, int warmups) {
  Timing t = summarize(std::move(samples));
  t.warmups = warmups;
  return t;
}

// Collects the phases of steps that are waited for one by one.
class PhaseSamples {
 public:
  explicit PhaseSamples(RankContext& ctx) : times_(ctx) {}

  void begin() {
    begun_ = Clock::now();  // first: a pause between the two belongs to the host, not to a phase
    times_.begin_step();
  }
  void end(bool counts) {
    const std::array<double, kStepPhases> seconds = times_.end_step();
    const double host = seconds_since(begun_);
    if (!counts) return;
    host_.push_back(host);
    for (std::size_t p = 0; p < seconds.size(); ++p) samples_[p].push_back(seconds[p]);
  }
  PhaseTimings take(StepMode mode, int warmups, bool captured) const {
    PhaseTimings t;
    for (std::size_t p = 0; p <= static_cast<std::size_t>(mode); ++p)  // a mode ends with its own phase
      t.phases[p] = timing_of(samples_[p], warmups);
    t.host = timing_of(host_, warmups);
    t.captured = captured;
    return t;
  }

 private:
  PhaseTimes times_;
  Clock::time_point begun_;
  std::array<std::vector<double>, kStepPhases> samples_;
  std::vector<double> host_;
};

// A run of its own: the steps before it were queued behind each other, here each is waited for.
void time_phases(const BenchStepRequest& request, RankContext& ctx, StepRow& row) {
  StepSpec spec = row.spec;
  // A graph that is replayed for every later micro-step passes the same marks each time.
  spec.step.graph = spec.step.graph && spec.step.micro_steps == 1;
  PhaseSamples phases(ctx);
  SyntheticStep step(ctx, spec);
  const int warmups = std::max(request.warmups, spec.step.graph ? 2 : 0);
  for (int i = 0; i < warmups + request.steps; ++i) {
    throw_if_stopped(request.stop);
    phases.begin();
    step.run();
    phases.end(i >= warmups);
  }
  step.finish();
  row.phases = phases.take(spec.mode, warmups, step.captured());
}

// Marks between steps that are queued one after another, as in a run. On the CPU, where a step is done when
// its call returns, the phases are timed on the way.
void queue_steps(const BenchStepRequest& request, RankContext& ctx, StepRow& row, Clock::time_point begun) {
  std::optional<PhaseSamples> phases;
  if (request.device.type == DeviceType::cpu) phases.emplace(ctx);
  SyntheticStep step(ctx, row.spec);
  StreamMarks marks(ctx);
  const int all = request.warmups + request.steps;
  Clock::time_point from = Clock::now();
  for (int i = 0; i < all; ++i) {
    throw_if_stopped(request.stop);
    marks.mark();
    if (phases) phases->begin();
    step.run();
    if (phases) phases->end(i >= request.warmups);
    if (i == 0) {
      row.first_loss = step.finish();
      row.first = row.first_eager = seconds_since(begun);
    } else if (i == 1 && row.spec.step.graph) {  // captured, and run as a graph for the first time
      step.finish();
      row.first = seconds_since(begun);
    }
    if (i + 1 == request.warmups) from = Clock::now();
  }
  marks.mark();
  row.wall = seconds_since(from) / request.steps;
  row.last_loss = step.finish();
  std::vector<double> samples;
  for (int i = 0; i < all; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double seconds = marks.ms_between(at, at + 1) / 1e3;
    if (i == 0) row.timing.first = seconds;
    if (i >= request.warmups) samples.push_back(seconds);
  }
  const double first = row.timing.first;
  row.timing = summarize(std::move(samples));
  row.timing.warmups = request.warmups;
  row.timing.first = first;
  row.captured = step.captured();
  if (phases) row.phases = phases->take(row.spec.mode, request.warmups, false);
}

void time_steps(const BenchStepRequest& request, const RankOptions& rank, OutOfMemory& full, StepRow& row,
                Clock::time_point begun) {
  RankContext ctx(rank);
  ctx.allocator().add_observer(&full);
  if (request.tuning) use_tuning(ctx, *request.tuning);
  queue_steps(request, ctx, row, begun);
  row.measured = ctx.allocator().stats();
  if (row.phases) return;
  try {
    time_phases(request, ctx, row);
  } catch (const Error& error) {  // the row is valid without them
    row.why_no_phases = error.what();
  }
}

// The roofline does not depend on the variants of a row.
std::vector<TimedOp> least_ops(const BenchStepRequest& request, const StepRow& row) {
  const RunVariants best = choose_variants("optimized", "", request.device.target);
  StepRow other = row;
  best.apply_to(other.spec.model);
  other.spec.model.recompute = Recompute::none;
  RankOptions rank = options_for(request.device, request.threads, request.seed);
  rank.variants = best.ops;
  return plan_step(other.spec, rank).ops;
}

// Of a whole step; its phases are not predicted apart.
void predict_row(StepPredictor& predictor, StepRow& row) {
  row.foreseen = predictor.predict(row.planned, policy_of(row.spec.precision).compute, row.spec.step.graph);
}

// The first step's clock does not run while the row is checked.
void run_row(const BenchStepRequest& request, StepGate& gate, StepPredictor& predictor, StepRow& row,
             Clock::time_point begun, const std::function<void(const std::string&)>& progress) {
  const RankOptions rank = rank_for(request, row);
  attempt_row(rank, row, [&](OutOfMemory& full) {
    if (!plan_row(request, row)) return;
    predict_row(predictor, row);
    if (row.foreseen)
      progress(cat(row.size.name, " ", row.variant_set(), ": ", plain(1e3 * row.foreseen->total(), 4),
                   " ms predicted"));
    const auto checking = Clock::now();
    if (!check_row(request, gate, row)) return;
    time_steps(request, rank, full, row, begun + (Clock::now() - checking));
  });
  if (!row.ok() && !row.gate_failed()) row.gate = Gate::not_verified;  // it passed, but has no times
}

// After everything that is timed by the clock: once CUPTI is attached, each launch costs the host more.
void split_rows(const BenchStepRequest& request, BenchStepReport& report) {
  std::optional<KernelTimes> times;  // one for all rows
  for (StepRow& row : report.rows) {
    if (!row.timed()) continue;
    const RankOptions rank = rank_for(request, row);
    attempt_row(rank, row, [&](OutOfMemory& full) {
      if (request.device.type == DeviceType::cuda) {
        if (!times) times.emplace(true);
        row.split = split_by_kernels(rank, request.tuning, row.spec, full, *times);
        return;
      }
      RankContext ctx(rank);
      ctx.allocator().add_observer(&full);
      row.split = split_by_ops(ctx, row.spec);
    });
  }
}

StepRow make_row(const BenchStepRequest& r, const NamedModel& size, int64_t context, Precision precision,
                 const std::string& preset, StepMode mode) {
  StepRow row;
  row.size = size;
  row.preset = preset;
  row.variants = r.variants;
  row.tuned = r.tuning.has_value();
  row.spec.model = config_of(size);
  row.spec.model.recompute = r.recompute;
  choose_variants(preset, r.variants, r.device.target).apply_to(row.spec.model);
  row.spec.precision = precision;
  row.spec.mode = mode;
  StepOptions& step = row.spec.step;
  step.batch = r.batch;
  step.context = context;
  step.micro_steps = r.micro_steps;
  step.max_norm = r.clip;
  const bool can = r.device.type == DeviceType::cuda;
  step.graph =
      r.graph == GraphChoice::on || (r.graph == GraphChoice::automatic && can && preset != "baseline");
  const double share = mode == StepMode::forward ? 1.0 / 3 : 1;  // backward is twice forward
  row.flops = share * train_flops_per_token(size, context) * static_cast<double>(row.tokens());
  return row;
}

}  // namespace

std::vector<StepRow> step_rows(const BenchStepRequest& r) {
  std::vector<StepRow> rows;
  for (const NamedModel& size : r.sizes) {
    for (int64_t context : r.contexts) {
      for (Precision precision : r.precisions) {
        for (const std::string& preset : r.presets) {
          for (StepMode mode : r.modes) rows.push_back(make_row(r, size, context, precision, preset, mode));
        }
      }
    }
  }
  return rows;
}

RankOptions rank_for(const BenchStepRequest& request, const StepRow& row) {
  RankOptions o = options_for(request.device, request.threads, request.seed);
  o.variants = choose_variants(row.preset, row.variants, request.device.target).ops;
  return o;
}

void attempt_row(const RankOptions& rank, StepRow& row, const std::function<void(OutOfMemory&)>& work) {
  OutOfMemory full;
  try {
    work(full);
  } catch (const Error& error) {
    if (full.happened) return no_memory(row, rank, error.what());
    row.set(status_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    no_memory(row, rank, "out of memory on the host");
  }
}

bool check_row(const BenchStepRequest& request, StepGate& gate, StepRow& row) {
  return note_gate(gate.check({row.spec, rank_for(request, row), row.planned, request.tuning, request.stop}),
                   row);
}

bool plan_row(const BenchStepRequest& request, StepRow& row) {
  const RankOptions rank = rank_for(request, row);
  row.policy = resolve_policy(row.spec, rank, request.folder);
  StepPlan plan = plan_step(row.spec, rank);
  row.predicted = plan.memory;
  row.planned = std::move(plan.ops);
  row.least = least_ops(request, row);
  for (const TimedOp& op : row.planned) {
    const std::pair<std::string, std::string> entry(op.op, op.variant);
    if (std::find(row.ops.begin(), row.ops.end(), entry) == row.ops.end()) row.ops.push_back(entry);
  }
  row.free_memory = free_memory_on(request.device);
  if (row.predicted.peak_total <= row.free_memory) return true;
  no_memory(row, rank,
            cat("it needs ", human({row.predicted.peak_total}), " of memory; ", human({row.free_memory}),
                " are available"));
  return false;
}

double StepRow::own_roofline_ms() const { return sum_of_rooflines(planned, best); }
double StepRow::roofline_ms() const { return sum_of_rooflines(least, best); }

RooflineFacts StepRow::roofline() const {
  return {.measured = 1e3 * timing.p50,
          .own = own_roofline_ms(),
          .best = roofline_ms(),
          .cached = std::min(sum_of_rooflines(planned, best, cache_bytes),
                             sum_of_rooflines(least, best, cache_bytes))};
}

std::string StepRow::variant_set() const {
  auto shape = [](bool fused) { return fused ? "fused" : "split"; };
  return fmt::format("{}{}{},dtype={},graph={},recompute={},micro_steps={},clip={},qkv={},gate_up={}{}",
                     preset, variants.empty() ? "" : ",", variants, name_of(spec.precision),
                     spec.step.graph ? "on" : "off", name_of(spec.model.recompute), spec.step.micro_steps,
                     spec.step.max_norm > 0 ? plain(spec.step.max_norm, 6) : "off",
                     shape(spec.model.fused_qkv), shape(spec.model.fused_gate_up), tuned ? ",tune=on" : "");
}

bool BenchStepReport::any_timed() const {
  return std::any_of(rows.begin(), rows.end(), [](const StepRow& r) { return r.timed(); });
}

const StepRow* BenchStepReport::first_not_timed() const {
  const auto found = std::find_if(rows.begin(), rows.end(), [](const StepRow& r) { return !r.timed(); });
  return found == rows.end() ? nullptr : &*found;
}

StepPlan plan_step(const StepSpec& spec, const RankOptions& rank) {
  RankOptions options = rank;
  options.device = Device::meta(rank.device.target);
  options.backend = {};
  RankContext ctx(options);
  StepPlan plan;
  SyntheticStep step(ctx, spec);
  step.run();
  {
    const OpTimes ops(ctx);
    step.run();  // the second finds what the first left behind
    step.finish();
    plan.ops = ops.take();
  }
  for (TimedOp& op : plan.ops) op.ms = 0;
  plan.memory = ctx.allocator().stats();
  return plan;
}

int64_t largest_batch(const StepSpec& spec, const RankOptions& rank, std::size_t free_memory) {
  return kiln::largest_batch(spec.step.batch, free_memory, [&](int64_t batch) {
    StepSpec smaller = spec;
    smaller.step.batch = batch;
    return plan_step(smaller, rank).memory.peak_total;
  });
}

void check_bench_step(const BenchStepRequest& r) {
  if (r.device.is_meta())
    throw Error("meta runs no kernels, so there is nothing to time", "use --device cpu or cuda",
                ErrorKind::usage);
  if (r.graph == GraphChoice::on && r.device.type != DeviceType::cuda)
    throw Error(cat("--graph is 'on', and ", r.device.str(), " cannot capture one"),
                "use --graph auto, or --device cuda", ErrorKind::unavailable);
  const bool gpu = r.device.type == DeviceType::cuda;
  if (r.kernels > 0 && !gpu)
    throw Error(cat("--kernels is ", r.kernels, ", and ", r.device.str(), " runs ops without kernels"),
                "use --split, or --device cuda", ErrorKind::usage);
  if (const std::string why = r.split && gpu ? why_no_kernel_times() : ""; !why.empty())
    throw Error(
        cat("--split needs CUPTI on a GPU: ", why),
        "it comes with the CUDA toolkit: put its lib64 or extras/CUPTI/lib64 folder into LD_LIBRARY_PATH",
        ErrorKind::unavailable);
  for (const StepRow& row : step_rows(r)) check_config(row.spec.model);
}

BenchStepReport bench_step(const BenchStepRequest& r,
                           const std::function<void(const std::string&)>& progress) {
  BenchStepReport report;
  const LoadWatch load(r.device);
  report.rows = step_rows(r);
  Clock::time_point begun = r.begun;
  StepGate gate(r.folder, progress);
  StepPredictor predictor(r.folder, r.device, r.threads);
  report.prediction_note = predictor.note();
  for (StepRow& row : report.rows) {
    report.stopped = !done_unless_stopped([&] {
      throw_if_stopped(r.stop);
      progress(cat(row.size.name, " ", row.variant_set()));
      run_row(r, gate, predictor, row, begun, progress);
    });
    if (report.stopped) {
      report.rows.resize(static_cast<std::size_t>(&row - report.rows.data()));
      break;
    }
    begun = Clock::now();
  }
  progress("measuring ceilings");
  const MeasuredPlace place = note_place(report, r.device, r.threads, report.rows);
  for (StepRow& row : report.rows) {
    row.cache_bytes = cache_bytes(r.device);
    row.best = {place.ceilings.flops.at(policy_of(row.spec.precision).compute).per_second, report.copy};
  }
  if (r.split) {
    progress("measuring the split");
    split_rows(r, report);
    report.kernels = r.kernels;
  }
  report.load = load.load();
  progress("");
  return report;
}

}  // namespace kiln
