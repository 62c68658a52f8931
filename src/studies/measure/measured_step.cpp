#include "studies/measure/measured_step.h"

#include <cstdlib>

#include <algorithm>

#include "autograd/tape.h"
#include "base/kernel_log.h"
#include "ops/add/add.h"
#include "perf/timing/statistics.h"
#include "perf/trace/step_tracer.h"
#include "studies/gate/gate.h"
#include "studies/measure/measured_ranks.h"
#include "studies/step/traced_step.h"

namespace kiln {
namespace {

constexpr int kLeastSteps = 3;

// One row, on its way.
struct Turn {
  const MeasureRequest& request;
  MeasuredStep& of;
  RankOptions rank;
  // Watches the clock's allocator for as long as there is one, over several attempts.
  std::unique_ptr<OutOfMemory> memory = std::make_unique<OutOfMemory>();
  std::unique_ptr<CallTimer> clock = {};
  int left = 0;  // steps to time

  TimedConfiguration what() const { return {rank, of.row.spec, request.step.tuning}; }
  void attempt(const std::function<void(OutOfMemory&)>& work) {
    attempt_row(rank, of.row, [&](OutOfMemory& full) {
      try {
        work(*memory);
      } catch (...) {
        full.happened = memory->happened;
        throw;
      }
    });
    if (of.timed() || of.row.gate_failed()) return;
    of.row.gate = Gate::not_verified;  // it passed, but has no times
    of.steps.clear();
    left = 0;
  }
};

int steps_within(const MeasureRequest& request, double ms) {
  const double most = 1e3 * request.seconds / std::max(ms, 1e-3);
  return std::clamp(static_cast<int>(std::min(most, 1e6)), std::min(kLeastSteps, request.step.steps),
                    request.step.steps);
}

void begin_on_cpu(Turn& turn, OutOfMemory& full) {
  turn.clock = std::make_unique<CallTimer>(turn.what(), full);
  double ms = 0;
  for (int i = 0; i < std::max(1, turn.request.step.warmups); ++i) ms = turn.clock->time_step().wall;
  turn.of.load = load_average();
  turn.left = steps_within(turn.request, ms);
}

void end_on_cpu(Turn& turn) {
  turn.of.ran = turn.clock->ops();
  turn.of.row.measured = turn.clock->memory();
  turn.clock.reset();
}

// What ran, by a step that is launched op by op: a replayed graph calls none.
void count_on_gpu(Turn& turn, OutOfMemory& full) {
  TracedStep launched(turn.rank, turn.request.step.tuning, eager(turn.of.row.spec), full);
  launched.step->run();
  (void)launched.step->finish();
  const OpTimes ops(launched.ctx);
  KernelLog kernels;
  launched.step->run();
  (void)launched.step->finish();
  turn.of.launches = static_cast<int>(kernels.take().size());
  turn.of.ran = ops.take();
}

void time_on_gpu(Turn& turn, OutOfMemory& full, std::optional<KernelTimes>& times) {
  MeasuredStep& of = turn.of;
  of.load = load_average();
  if (turn.request.by_calls) {
    if (!times) times.emplace(true);
    TimedSteps timed =
        time_by_kernels(turn.what(), of.row.planned.size(), turn.request.step.steps, full, *times);
    of.steps = std::move(timed.steps);
    of.row.measured = timed.memory;
    of.attributed = timed.attributed;
    of.row.captured = of.row.spec.step.graph;
    return;
  }
  TracedStep step(turn.rank, turn.request.step.tuning, of.row.spec, full);
  of.row.timing = time_untraced(step.ctx, step.work,
                                {.warmups = std::max(3, turn.request.step.warmups),
                                 .steps = turn.request.step.steps,
                                 .max_seconds = turn.request.seconds})
                      .timer;
  of.row.captured = step.step->captured();
  of.row.measured = step.ctx.allocator().stats();
}

// The calls that ran are the planned ones, in order: their costs are one another's.
void finish(Turn& turn) {
  MeasuredStep& of = turn.of;
  for (TimedOp& op : of.ran) op.ms = 0;
  check_costs(of.ran);
  const std::vector<TimedOp>& planned = of.row.planned;
  const bool same = std::equal(planned.begin(), planned.end(), of.ran.begin(), of.ran.end(),
                               [](const TimedOp& a, const TimedOp& b) {
                                 return a.op == b.op && a.variant == b.variant && a.pass == b.pass;
                               });
  if (!same)
    throw Error(cat("the step ran ", of.ran.size(), " calls of ops, and its plan has ", planned.size(),
                    ", or others: a fault in the plan"));
  if (of.steps.empty()) return;
  std::vector<double> seconds;
  for (const StepCalls& s : of.steps) seconds.push_back(s.wall / 1e3);
  of.row.timing = summarize(std::move(seconds));
  of.row.timing.warmups = turn.request.step.warmups;
}

void time_cpu_turns(std::span<Turn> turns, const Progress& progress) {
  for (Turn& turn : turns) {
    progress(cat("timing ", turn.of.row.size.name, " ", turn.of.row.variant_set()));
    turn.attempt([&](OutOfMemory& full) { begin_on_cpu(turn, full); });
  }
  const auto more = [](const Turn& turn) { return turn.left > 0; };
  while (std::any_of(turns.begin(), turns.end(), more)) {
    for (Turn& turn : turns) {
      if (turn.left-- > 0)
        turn.attempt([&](OutOfMemory&) { turn.of.steps.push_back(turn.clock->time_step()); });
    }
  }
  for (Turn& turn : turns) {
    if (!turn.of.timed()) continue;
    end_on_cpu(turn);
    finish(turn);
  }
}

void time_gpu_turn(Turn& turn, std::optional<KernelTimes>& times, const Progress& progress) {
  progress(cat("timing ", turn.of.row.size.name, " ", turn.of.row.variant_set()));
  turn.attempt([&](OutOfMemory& full) {
    count_on_gpu(turn, full);
    time_on_gpu(turn, full, times);
  });
  if (turn.of.timed()) finish(turn);
}

}  // namespace

std::vector<OpCalls> group_calls(std::span<const TimedOp> ops) {
  std::vector<OpCalls> groups;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const TimedOp& op = ops[i];
    const std::string_view pass = step_pass(op);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const OpCalls& g) {
      return g.op == op.op && g.variant == op.variant && g.pass == pass;
    });
    if (group == groups.end()) group = groups.insert(groups.end(), OpCalls{op.op, op.variant, pass, {}, {}});
    group->calls.push_back(i);
    group->cost = group->cost + op.cost;
  }
  return groups;
}

Cost MeasuredStep::executed() const {
  if (share) return share->executed;
  Cost sum;
  for (const TimedOp& op : ran) sum = sum + op.cost;
  return sum;
}

std::vector<double> MeasuredStep::samples_of(const OpCalls& group) const {
  std::vector<double> samples;
  for (const StepCalls& step : steps) {
    double ms = 0;
    for (const std::size_t i : group.calls) ms += step.ms[i] + step.before[i];
    samples.push_back(ms);
  }
  return samples;
}

void check_measure(const MeasureRequest& r) {
  check_bench_step(r.step);
  check_measured_ranks(r);
  const bool gpu = r.step.device.type == DeviceType::cuda;
  if (const std::string why = r.by_calls && gpu ? why_no_kernel_times() : ""; !why.empty())
    throw Error(cat("the kernels of a GPU are timed by CUPTI: ", why),
                "it comes with the CUDA toolkit; kiln measure and kiln calc time need none",
                ErrorKind::unavailable);
}

std::vector<MeasuredStep> measure_steps(std::span<const MeasureRequest> requests, bool by_turns,
                                        const Progress& progress) {
  std::vector<MeasuredStep> all;
  std::vector<const MeasureRequest*> of_row;
  for (const MeasureRequest& r : requests) {
    for (StepRow& row : step_rows(r.step)) {
      all.push_back({.row = std::move(row)});
      of_row.push_back(&r);
    }
  }
  if (all.empty()) return all;
  StepGate gate(requests.front().step.folder, progress);
  std::optional<KernelTimes> times;
  std::vector<Turn> turns;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const MeasureRequest& r = *of_row[i];
    Turn turn{r, all[i], rank_for(r.step, all[i].row)};
    if (r.step.stop && r.step.stop()) {
      all.resize(i);
      break;
    }
    bool right = false;
    turn.attempt(
        [&](OutOfMemory&) { right = plan_row(r.step, all[i].row) && check_row(r.step, gate, all[i].row); });
    if (!right || !all[i].timed()) continue;
    if (r.strategy != "none")
      turn.attempt([&](OutOfMemory&) { time_ranks_of(r, all[i], progress); });
    else if (r.step.device.type == DeviceType::cuda)
      time_gpu_turn(turn, times, progress);
    else if (by_turns)
      turns.push_back(std::move(turn));
    else
      time_cpu_turns({&turn, 1}, progress);
  }
  time_cpu_turns(turns, progress);
  progress("");
  return all;
}

double smallest_call_ms(const RankOptions& rank) {
  RankContext ctx(rank);
  if (rank.device.type != DeviceType::cpu) return smallest_op_ms(ctx);
  const GradModeGuard off(ctx, GradMode::off);
  const Tensor x = ctx.zeros({8}, DType::f32);
  const OpTimes times(ctx);
  for (int i = 0; i < 256; ++i) (void)add(ctx, x, x);
  std::vector<double> ms;
  for (const TimedOp& op : times.take()) ms.push_back(op.ms);
  return median_of(ms);
}

double load_average() {
  double one_minute = 0;
  return ::getloadavg(&one_minute, 1) == 1 ? one_minute : 0;
}

void check_costs(std::span<const TimedOp> ops) {
  for (const TimedOp& op : ops) {
    if (op.cost.flops <= 0 && op.cost.bytes <= 0)
      throw Error(cat("[", op.op, "] variant ", op.variant, " ran in the ", step_pass(op),
                      " pass and states neither operations nor bytes"),
                  "its cost function is in the op's own .cpp (docs/add-an-op.md)");
  }
}

}  // namespace kiln
