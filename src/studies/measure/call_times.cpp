#include "studies/measure/call_times.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "perf/timing/statistics.h"
#include "studies/step/traced_step.h"

namespace kiln {
namespace {

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

}  // namespace

double StepCalls::outside() const { return wall - sum(ms) - sum(before); }

StepCalls calls_of(const Trace& step, std::size_t calls) {
  StepCalls s;
  s.wall = step.ms();
  s.ms.resize(calls);
  s.before.resize(calls);
  double until = step.begin_us;  // all before it is charged to somebody
  for (const TraceSpan& span : step.spans) {
    const double end = std::min(span.end_us, step.end_us);
    if (end <= until) continue;
    const double begin = std::max(span.begin_us, until);
    if (span.op >= 0 && static_cast<std::size_t>(span.op) < calls) {
      const auto at = static_cast<std::size_t>(span.op);
      s.before[at] += (begin - until) / 1e3;
      s.ms[at] += (end - begin) / 1e3;
    }
    until = end;
  }
  return s;
}

CallTimes call_times(const std::vector<StepCalls>& steps) {
  if (steps.empty()) throw Error("no step was timed");
  CallTimes t;
  std::vector<double> walls, outsides;
  for (const StepCalls& s : steps) {
    if (s.ms.size() != steps.front().ms.size())
      throw Error(cat("two steps ran different ops: ", steps.front().ms.size(), " calls and ", s.ms.size()));
    walls.push_back(s.wall);
    outsides.push_back(s.outside());
  }
  for (std::size_t i = 0; i < steps.front().ms.size(); ++i) {
    std::vector<double> own, before;
    for (const StepCalls& s : steps) {
      own.push_back(s.ms[i]);
      before.push_back(s.before[i]);
    }
    t.best.push_back(*std::min_element(own.begin(), own.end()));
    t.typical.push_back(median_of(own));
    t.before.push_back(median_of(before));
  }
  t.step = median_of(walls);
  t.outside = median_of(outsides);
  t.residual = t.step - t.outside - sum(t.typical) - sum(t.before);
  return t;
}

struct CallTimer::Parts {
  Parts(const TimedConfiguration& what, OutOfMemory& full)
      : of(what.rank, what.tuning, what.spec, full), marks(of.ctx), times(of.ctx) {}

  TracedStep of;
  StreamMarks marks;
  OpTimes times;
};

CallTimer::CallTimer(const TimedConfiguration& what, OutOfMemory& full)
    : parts_(std::make_unique<Parts>(what, full)) {}
CallTimer::~CallTimer() = default;

void CallTimer::warm_up() { (void)time_step(); }

StepCalls CallTimer::time_step() {
  Parts& p = *parts_;
  p.marks.clear();
  p.times.clear();
  p.marks.mark();
  p.of.step->run();
  p.marks.mark();
  p.of.step->finish();
  ops_ = p.times.take();
  StepCalls s;
  s.wall = p.marks.ms_between(0, 1);
  for (const TimedOp& op : ops_) s.ms.push_back(op.ms);
  s.before = p.times.gaps_ms();
  return s;
}

MemoryStats CallTimer::memory() const { return parts_->of.ctx.allocator().stats(); }

TimedSteps time_by_kernels(const TimedConfiguration& what, std::size_t calls, int steps, OutOfMemory& full,
                           KernelTimes& times) {
  const TraceOptions options{.steps = steps};
  KernelOrder order;
  TimedSteps timed;
  const auto keep = [&](const TracedSteps& traced, RankContext& ctx) {
    timed.steps.clear();
    for (const Trace& t : traced.steps) timed.steps.push_back(calls_of(t, calls));
    timed.attributed = traced.attributed;
    timed.memory = ctx.allocator().stats();
  };
  {
    TracedStep launched(what.rank, what.tuning, eager(what.spec), full);
    keep(trace_by_kernels(launched.ctx, launched.work, options, times, &order), launched.ctx);
  }
  if (!what.spec.step.graph) return timed;
  TracedStep replayed(what.rank, what.tuning, what.spec, full);
  keep(trace_replays(replayed.ctx, replayed.work, options, times, order), replayed.ctx);
  return timed;
}

}  // namespace kiln
