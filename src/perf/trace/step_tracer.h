// Runs a step with a tracer attached, and measures the tracer's cost. Three sources: the clock on the CPU;
// CUPTI's records on a GPU (kernel_attribution.h matches them with ops, in replayed graphs too); marks
// around ops on a GPU where CUPTI is missing or refused, which see no kernels and only steps that are
// launched op by op.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "perf/timing/timing.h"
#include "perf/trace/kernel_attribution.h"
#include "perf/trace/op_tracer.h"

namespace kiln {

enum class TraceSource { clock, cupti, events };
std::string_view name_of(TraceSource s);

// One step: queues it, and waits for the last one queued.
struct TracedWork {
  std::function<void()> run, finish;
};

struct TraceOptions {
  int warmups = 2, steps = 5;
  double max_seconds = 5;    // of all; a slow step is traced fewer times, at least once
  bool stacks = false;       // also who called each op
  StopAsked stop = nullptr;  // asked before each step; true: throws Stopped
};

struct TracedSteps {
  TraceSource source = TraceSource::clock;
  std::vector<Trace> steps;
  Timing timer;           // of the same steps without the tracer; on a GPU the caller times them before
  Timing traced;          // with it
  double attributed = 1;  // share of the kernels' time whose op is known
  const Trace& median() const { return steps[static_cast<std::size_t>(median_step(steps))]; }
};

// On the CPU, by turns with and without the tracer, so that a machine that slows down slows both.
TracedSteps trace_by_clock(RankContext& ctx, const TracedWork& work, const TraceOptions& options);

// On a GPU, with marks around every op. The work must not replay graphs.
TracedSteps trace_by_events(RankContext& ctx, const TracedWork& work, const TraceOptions& options);

// On a GPU, by CUPTI: steps that are launched op by op. `order` gets what replays of them are matched with.
TracedSteps trace_by_kernels(RankContext& ctx, const TracedWork& work, const TraceOptions& options,
                             KernelTimes& times, KernelOrder* order = nullptr);
// Steps that replay graphs of the same ops.
TracedSteps trace_replays(RankContext& ctx, const TracedWork& work, const TraceOptions& options,
                          KernelTimes& times, const KernelOrder& order);

// Steps queued one after another without a tracer, between marks on the device; and, of single steps queued
// on an idle device, how long the host was at it.
struct UntracedSteps {
  Timing timer;
  double host_ms = 0;
};
UntracedSteps time_untraced(RankContext& ctx, const TracedWork& work, const TraceOptions& options);

// What the smallest op takes on this device, in ms: no op is predicted to be faster.
double smallest_op_ms(RankContext& ctx);

}  // namespace kiln
