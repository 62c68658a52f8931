#include "studies/profile/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "base/atomic_file.h"
#include "device/device_room.h"
#include "model/compile_check.h"
#include "report/export/step_timeline.h"
#include "report/html/timeline_html.h"
#include "studies/gate/gate.h"
#include "studies/place.h"
#include "studies/profile/attention_parts.h"
#include "studies/step/step_policy.h"
#include "studies/step/traced_step.h"
#include "studies/variant_check.h"
#include "train/presets.h"

namespace kiln {
namespace {

bool on_gpu(const ProfileRequest& r) { return r.device.type == DeviceType::cuda; }

RankOptions rank_for(const ProfileRequest& r) {
  RankOptions o = options_for(r.device, r.threads, r.seed);
  o.variants = choose_variants(r.preset, r.variants, r.device.target).ops;
  return o;
}

StepProfile make_step(const ProfileRequest& r, const NamedModel& size, int64_t context, Precision precision) {
  StepProfile p;
  p.size = size;
  p.preset = r.preset;
  p.variants = r.variants;
  p.tuned = r.tuning.has_value();
  p.spec.model = config_of(size);
  p.spec.model.recompute = r.recompute;
  p.spec.model.compile = r.compile;
  choose_variants(r.preset, r.variants, r.device.target).apply_to(p.spec.model);
  p.spec.precision = precision;
  StepOptions& step = p.spec.step;
  step.batch = r.batch;
  step.context = context;
  step.micro_steps = r.micro_steps;
  step.graph = r.graph == GraphChoice::on ||
               (r.graph == GraphChoice::automatic && on_gpu(r) && r.preset != "baseline");
  p.policy = resolve_policy(p.spec, rank_for(r), r.folder);
  p.model = model_work(p.spec);
  return p;
}

// A budget is met for a step of its own length, once that is known.
ProfileRequest without_budget(ProfileRequest r) {
  if (r.recompute.kind == Recompute::Kind::budget) r.recompute = Recompute::none;
  return r;
}

bool fits(const ProfileRequest& r, const StepProfile& p) {
  try {
    return plan_step(p.spec, rank_for(r)).memory.peak_total <= free_memory_on(r.device);
  } catch (const Error&) {  // of what cannot even be counted
    return false;
  }
}

std::vector<StepProfile> all_steps(const ProfileRequest& r) {
  std::vector<StepProfile> steps;
  for (const NamedModel& size : r.sizes) {
    for (int64_t context : r.contexts) {
      for (Precision precision : r.precisions) {
        int64_t length = context;
        if (context == kLargestContext)
          length = largest_context(
              [&](int64_t T) { return fits(r, make_step(without_budget(r), size, T, precision)); });
        steps.push_back(make_step(r, size, length, precision));
      }
    }
  }
  return steps;
}

// Before anything is attached to the device: once CUPTI is, each launch costs the host more.
void time_step(const ProfileRequest& r, StepProfile& p, OutOfMemory& full) {
  TracedStep ready(rank_for(r), r.tuning, p.source == TraceSource::events ? eager(p.spec) : p.spec, full);
  const UntracedSteps plain = time_untraced(ready.ctx, ready.work, r.trace);
  p.timer = plain.timer;
  p.host_ms = plain.host_ms;
  p.captured = ready.step->captured();
  p.measured = ready.ctx.allocator().stats();
}

struct BothTraces {
  TracedSteps full, forward;
};

BothTraces trace_both(const ProfileRequest& r, StepProfile& p, OutOfMemory& full, KernelTimes* times) {
  TraceOptions less = r.trace;  // a third of the work, a third of the time
  less.max_seconds = r.trace.max_seconds / 3;
  if (times == nullptr) {
    TracedStep ready(rank_for(r), r.tuning, eager(p.spec), full);
    const auto trace = p.source == TraceSource::events ? trace_by_events : trace_by_clock;
    BothTraces both;
    both.full = trace(ready.ctx, ready.work, r.trace);
    if (!on_gpu(r)) p.measured = ready.ctx.allocator().stats();
    both.forward = trace(ready.ctx, ready.forward, less);
    return both;
  }
  KernelOrder order, forward_order;
  BothTraces launched;
  {
    TracedStep ready(rank_for(r), r.tuning, eager(p.spec), full);
    launched.full = trace_by_kernels(ready.ctx, ready.work, r.trace, *times, &order);
    launched.forward = trace_by_kernels(ready.ctx, ready.forward, less, *times, &forward_order);
  }
  if (!p.spec.step.graph) return launched;
  TracedStep ready(rank_for(r), r.tuning, p.spec, full);
  BothTraces replayed;
  replayed.full = trace_replays(ready.ctx, ready.work, r.trace, *times, order);
  replayed.forward = trace_replays(ready.ctx, ready.forward, less, *times, forward_order);
  return replayed;
}

// CUPTI, or the reason why not.
std::unique_ptr<KernelTimes> open_cupti(const ProfileRequest& r, std::string& why_not) {
  if (!on_gpu(r) || r.source == TraceSource::events) return nullptr;
  why_not = why_no_kernel_times();
  if (why_not.empty()) {
    try {
      auto times = std::make_unique<KernelTimes>(true);
      times->start();
      (void)times->stop();
      return times;
    } catch (const Error& e) {
      why_not = e.what();
    }
  }
  if (r.source == TraceSource::cupti)
    throw Error(cat("--source is 'cupti': ", why_not), "use --source events, or run as an administrator",
                ErrorKind::unavailable);
  return nullptr;
}

void attempt(StepProfile& p, const std::function<void(OutOfMemory&)>& work) {
  if (!p.traced()) return;
  OutOfMemory full;
  try {
    work(full);
  } catch (const Error& e) {
    p.set(full.happened ? RowStatus::oom : status_of(e.kind()), e.what());
  } catch (const std::bad_alloc&) {
    p.set(RowStatus::oom, "out of memory on the host");
  }
}

void plan(const ProfileRequest& r, StepProfile& p) {
  attempt(p, [&](OutOfMemory&) {
    const StepPlan planned = plan_step(p.spec, rank_for(r));
    p.predicted = planned.memory;
    p.planned_ops = static_cast<int>(planned.ops.size());
    p.free_memory = free_memory_on(r.device);
    if (p.predicted.peak_total <= p.free_memory) return;
    p.set(RowStatus::oom, cat("it needs ", human({p.predicted.peak_total}), " of memory; ",
                              human({p.free_memory}), " are available"));
  });
}

void check(const ProfileRequest& r, StepGate& gate, StepProfile& p) {
  attempt(p, [&](OutOfMemory&) {
    note_gate(gate.check({p.spec, rank_for(r), plan_step(p.spec, rank_for(r)).ops, r.tuning, r.trace.stop}),
              p);
  });
  if (!p.traced() && !p.gate_failed()) p.gate = Gate::not_verified;
}

void trace(const ProfileRequest& r, StepProfile& p, KernelTimes* times) {
  attempt(p, [&](OutOfMemory& full) {
    BothTraces both = trace_both(r, p, full, times);
    p.full = std::move(both.full);
    p.forward = std::move(both.forward);
    if (!on_gpu(r)) p.timer = p.full.timer;
  });
  if (r.stacks) {
    attempt(p, [&](OutOfMemory& full) {
      TraceOptions with_stacks = r.trace;
      with_stacks.stacks = true;
      TracedStep ready(rank_for(r), r.tuning, eager(p.spec), full);
      p.stacks = times != nullptr ? trace_by_kernels(ready.ctx, ready.work, with_stacks, *times)
                 : p.source == TraceSource::events ? trace_by_events(ready.ctx, ready.work, with_stacks)
                                                   : trace_by_clock(ready.ctx, ready.work, with_stacks);
    });
  }
  attempt(p, [&](OutOfMemory&) {
    p.attention = study_attention(p, rank_for(r), r.trace, times);
    p.file = (std::filesystem::path(r.folder) / cat("profile-", p.name(), ".trace.json")).string();
    p.viewer = write_timeline_files(step_timeline(p.full.steps, cat("kiln ", p.name())), p.file);
  });
}

}  // namespace

std::string StepProfile::name() const {
  return cat(size.name, "-", name_of(spec.precision), "-b", spec.step.batch, "-ctx", spec.step.context,
             preset == "optimized" ? "" : cat("-", preset));
}

double StepProfile::tracing_cost() const {
  const std::vector<double>&plain = full.timer.samples, &traced = full.traced.samples;
  if (plain.empty()) return timer.p50 > 0 ? full.traced.p50 / timer.p50 - 1 : 0;
  std::vector<double> ratios(plain.size());
  std::transform(traced.begin(), traced.end(), plain.begin(), ratios.begin(), std::divides<>());
  return summarize(std::move(ratios)).p50 - 1;
}

int64_t largest_context(const std::function<bool(int64_t)>& fits) {
  constexpr int64_t kLeast = 128, kMost = 1 << 20;
  int64_t context = kLeast;
  while (context < kMost && fits(2 * context)) context *= 2;
  return context;
}

ModelWork model_work(const StepSpec& spec) {
  const auto B = static_cast<double>(spec.step.batch), T = static_cast<double>(spec.step.context);
  const ModelConfig& c = spec.model;
  const double width = static_cast<double>(c.heads * c.head_dim());
  ModelWork work;
  work.attention_dense = 4 * B * T * T * width;  // scores and values, a multiplication and an addition each
  work.attention_causal = work.attention_dense / 2;
  work.unmasked = 2 * T / (T + 1);
  work.head = 2 * B * T * static_cast<double>(c.d_model) * static_cast<double>(c.vocab);
  return work;
}

void check_profile(const ProfileRequest& r) {
  if (r.device.is_meta())
    throw Error("meta runs no kernels, so there is nothing to trace", "use --device cpu or cuda",
                ErrorKind::usage);
  if (r.graph == GraphChoice::on && !on_gpu(r))
    throw Error(cat("--graph is 'on', and ", r.device.str(), " cannot capture one"),
                "use --graph auto, or --device cuda", ErrorKind::unavailable);
  if (r.source && !on_gpu(r))
    throw Error(
        cat("--source is '", name_of(*r.source), "', and ", r.device.str(), " is traced by the clock"),
        "leave --source out, or use --device cuda", ErrorKind::usage);
  for (const NamedModel& size : r.sizes)
    check_config(make_step(without_budget(r), size, 1, r.precisions.front()).spec.model);
  ModelConfig asked;
  asked.compile = r.compile;
  check_compile(asked, r.device);
}

ProfileReport run_profile(const ProfileRequest& r, const std::function<void(const std::string&)>& progress) {
  ProfileReport report;
  const LoadWatch load(r.device);
  report.phases = r.phases;
  report.above = r.above / 100;
  report.kernels = r.kernels;
  report.steps = all_steps(r);
  StepGate gate(r.folder, progress);
  for (StepProfile& p : report.steps) {
    if (on_gpu(r)) p.source = r.source == TraceSource::events ? TraceSource::events : TraceSource::cupti;
    plan(r, p);
    check(r, gate, p);
  }
  if (on_gpu(r)) {
    const std::string why = why_no_kernel_times();
    for (StepProfile& p : report.steps) {
      if (!why.empty() && !r.source) p.source = TraceSource::events;
      progress(cat(p.name(), ": timing"));
      attempt(p, [&](OutOfMemory& full) { time_step(r, p, full); });
    }
  }
  progress("measuring ceilings");
  const MeasuredPlace place = note_place(report, r.device, r.threads, report.steps);
  double smallest = 0;
  {
    RankContext ctx(options_for(r.device, r.threads, r.seed));
    smallest = smallest_op_ms(ctx);
  }
  std::string why_not;
  const std::unique_ptr<KernelTimes> times = open_cupti(r, why_not);
  for (StepProfile& p : report.steps) {
    p.rates = {{place.ceilings.flops.at(policy_of(p.spec.precision).compute).per_second, report.copy},
               smallest};
    if (on_gpu(r) && !times && p.source == TraceSource::cupti) {  // refused, when all had been timed
      p.source = TraceSource::events;
      attempt(p, [&](OutOfMemory& full) { time_step(r, p, full); });
    }
    p.note = why_not;
    progress(cat(p.name(), ": tracing"));
    report.stopped = !done_unless_stopped([&] { trace(r, p, times.get()); });
    if (report.stopped) {
      report.steps.resize(static_cast<std::size_t>(&p - report.steps.data()));
      break;
    }
  }
  if (report.steps.empty()) throw Stopped{};
  report.load = load.load();
  progress("");
  return report;
}

}  // namespace kiln
