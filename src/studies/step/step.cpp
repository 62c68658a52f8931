#include "studies/step/step.h"

#include <fmt/format.h>

#include <algorithm>

#include "autograd/region.h"
#include "base/plain_number.h"
#include "device/device_room.h"
#include "model/compile_check.h"
#include "studies/gate/gate.h"
#include "studies/place.h"
#include "studies/step/row_clock.h"
#include "studies/step/step_policy.h"
#include "studies/variant_check.h"
#include "train/memory_prediction.h"
#include "train/presets.h"
#include "train/step_choice.h"

namespace kiln {
namespace {

using Clock = RowClock::Clock;

constexpr int kTurns = 5;  // of each row, where several are timed by turns

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

// The roofline does not depend on the variants of a row.
std::vector<TimedOp> least_ops(const BenchStepRequest& request, const StepRow& row) {
  const RunVariants best = choose_variants("optimized", "", request.device.target);
  StepRow other = row;
  best.apply_to(other.spec.model);
  other.spec.model.recompute = Recompute::none;
  other.spec.model.compile = CompileMode::none;
  RankOptions rank = options_for(request.device, request.threads, request.seed);
  rank.variants = best.ops;
  return plan_step(other.spec, rank).ops;
}

// Of a whole step; its phases are not predicted apart.
void predict_row(const StepClock& clock, StepRow& row) {
  row.foreseen = clock.predict(row.planned, policy_of(row.spec.precision).compute, row.spec.step.graph);
}

// A row that is being measured, and what went before its first step: building the program's state counts for
// that step, the check does not.
struct Contender {
  StepRow* row;
  RankOptions rank;
  OutOfMemory full;
  std::chrono::duration<double> before;
  std::unique_ptr<RowClock> steps;

  void attempt(const std::function<void()>& work) {
    attempt_row(rank, *row, full, work);
    if (!row->ok()) steps.reset();
  }
  bool lives() const { return steps != nullptr; }
};

// False where the row cannot be timed, and says why.
bool prepare_row(const BenchStepRequest& request, StepGate& gate, const StepClock& clock, Contender& c,
                 const std::function<void(const std::string&)>& progress) {
  StepRow& row = *c.row;
  bool ready = false;
  c.attempt([&] {
    const auto planning = Clock::now();
    if (!plan_row(request, row)) return;
    predict_row(clock, row);
    c.before += Clock::now() - planning;
    if (row.foreseen)
      progress(cat(row.size.name, " ", row.variant_set(), ": ", plain(1e3 * row.foreseen->total(), 4),
                   " ms predicted"));
    ready = check_row(request, gate, row);
  });
  return ready && row.ok();
}

void begin_steps(const BenchStepRequest& request, Contender& c) {
  c.attempt([&] {
    const auto begun = Clock::now() - std::chrono::duration_cast<Clock::duration>(c.before);
    c.steps = std::make_unique<RowClock>(request, c.rank, c.full, *c.row, begun);
    c.steps->warm_up();
  });
}

// Rows whose models have memory beside each other, a few steps each in turn: what the machine does meanwhile
// meets all of them.
void time_by_turns(const BenchStepRequest& request, std::span<Contender> contenders) {
  for (Contender& c : contenders) begin_steps(request, c);
  const int block = std::max(1, request.steps / kTurns);
  for (int done = 0; done < request.steps; done += block) {
    for (Contender& c : contenders) {
      if (c.lives())
        c.attempt([&] { c.steps->time(std::min(block, request.steps - done), /*after_others=*/true); });
    }
  }
  for (Contender& c : contenders) {
    if (c.lives()) c.attempt([&] { c.steps->finish(); });
    c.row->by_turns = c.row->timed();
    c.steps.reset();
  }
}

void time_alone(const BenchStepRequest& request, Contender& c) {
  begin_steps(request, c);
  if (c.lives())
    c.attempt([&] {
      c.steps->time(request.steps, /*after_others=*/false);
      c.steps->finish();
    });
  c.steps.reset();
}

// Rows of one model and context: they are read beside each other.
void run_rows(const BenchStepRequest& request, StepGate& gate, const StepClock& clock,
              std::span<StepRow> rows, Clock::time_point begun,
              const std::function<void(const std::string&)>& progress) {
  std::vector<Contender> contenders;
  std::size_t together = 0;
  for (StepRow& row : rows) {
    throw_if_stopped(request.stop);
    progress(cat(row.size.name, " ", row.variant_set()));
    Contender c{
        .row = &row, .rank = rank_for(request, row), .full = {}, .before = Clock::now() - begun, .steps = {}};
    if (prepare_row(request, gate, clock, c, progress)) {
      together += row.predicted.peak_total;
      contenders.push_back(std::move(c));
    } else if (!row.ok() && !row.gate_failed()) {
      row.gate = Gate::not_verified;
    }
    begun = Clock::now();
  }
  if (contenders.size() > 1 && together <= free_memory_on(request.device)) {
    time_by_turns(request, contenders);
  } else {
    for (Contender& c : contenders) time_alone(request, c);
  }
  for (StepRow& row : rows) {  // it passed, but has no times
    if (!row.ok() && !row.gate_failed()) row.gate = Gate::not_verified;
  }
}

// From `first` on.
std::span<StepRow> rows_of_one_model(std::vector<StepRow>& rows, std::size_t first) {
  const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = std::find_if(begin, rows.end(), [&](const StepRow& r) {
    return r.size.name != begin->size.name || r.spec.step.context != begin->spec.step.context;
  });
  return {begin, end};
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
                 const std::string& preset, CompileMode compile, StepMode mode) {
  StepRow row;
  row.size = size;
  row.preset = preset;
  row.variants = r.variants;
  row.tuned = r.tuning.has_value();
  row.spec.model = config_of(size);
  row.spec.model.recompute = r.recompute;
  row.spec.model.compile = compile;
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
          for (CompileMode compile : r.compile) {
            for (StepMode mode : r.modes)
              rows.push_back(make_row(r, size, context, precision, preset, compile, mode));
          }
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

void attempt_row(const RankOptions& rank, StepRow& row, const OutOfMemory& full,
                 const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    if (full.happened) return no_memory(row, rank, error.what());
    row.set(status_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    no_memory(row, rank, "out of memory on the host");
  }
}

void attempt_row(const RankOptions& rank, StepRow& row, const std::function<void(OutOfMemory&)>& work) {
  OutOfMemory full;
  attempt_row(rank, row, full, [&] { work(full); });
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
  const CompileMode mode = spec.model.compile;
  return fmt::format("{}{}{},dtype={},graph={},recompute={},micro_steps={},clip={},qkv={},gate_up={}{}{}",
                     preset, variants.empty() ? "" : ",", variants, name_of(spec.precision),
                     spec.step.graph ? "on" : "off", name_of(spec.model.recompute), spec.step.micro_steps,
                     spec.step.max_norm > 0 ? plain(spec.step.max_norm, 6) : "off",
                     shape(spec.model.fused_qkv), shape(spec.model.fused_gate_up), tuned ? ",tune=on" : "",
                     mode == CompileMode::none ? "" : cat(",compile=", name_of(mode)));
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
  for (const StepRow& row : step_rows(r)) {
    check_config(row.spec.model);
    check_context(row.spec.model, row.spec.step.context);
    check_compile(row.spec.model, r.device);
  }
}

BenchStepReport bench_step(const BenchStepRequest& r,
                           const std::function<void(const std::string&)>& progress) {
  BenchStepReport report;
  const LoadWatch load(r.device);
  report.rows = step_rows(r);
  Clock::time_point begun = r.begun;
  StepGate gate(r.folder, progress);
  const StepClock clock = clock_of(r.folder, r.device, r.threads, DType::f32);
  report.prediction_note = clock.note;
  for (std::size_t i = 0; i < report.rows.size();) {
    const std::span<StepRow> rows = rows_of_one_model(report.rows, i);
    report.stopped = !done_unless_stopped([&] { run_rows(r, gate, clock, rows, begun, progress); });
    if (report.stopped) {
      report.rows.resize(i);
      break;
    }
    i += rows.size();
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
