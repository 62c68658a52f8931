// Steps on a GPU, traced by CUPTI's records.
#include <algorithm>

#include "base/error.h"
#include "perf/trace/nvtx_ranges.h"
#include "perf/trace/step_tracer.h"

namespace kiln {
namespace {

// One step more than is wanted: the first is where the clock of the second starts, behind it the GPU finds
// the next step queued, as in a run.
struct Recorded {
  StepRecords records;
  std::vector<Trace> hosts;                    // what the host did in each, where it called ops
  std::vector<std::vector<int>> memory_at_op;  // of each
};

int steps_within(RankContext& ctx, const TracedWork& work, const TraceOptions& o) {
  const auto begin = std::chrono::steady_clock::now();
  work.run();
  work.finish();
  ctx.synchronize();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return std::clamp(static_cast<int>(o.max_seconds / std::max(seconds, 1e-6)) - 1, 1, o.steps);
}

Recorded record(RankContext& ctx, const TracedWork& work, int steps, KernelTimes& times, bool replays,
                bool stacks = false) {
  Recorded r;
  r.records.zero_ns = KernelTimes::now_ns();
  const uint64_t zero = r.records.zero_ns;
  OpTracer tracer(ctx, OpTracer::Clock::host,
                  [zero] { return static_cast<double>(KernelTimes::now_ns() - zero) / 1e3; });
  if (stacks) tracer.take_stacks();
  if (!replays) tracer.attach();
  ctx.synchronize();
  times.start();
  const NvtxRange capture("kiln_profile");
  for (int i = 0; i <= steps; ++i) {
    const NvtxRanges ranges(ctx);
    r.records.begins_ns.push_back(KernelTimes::now_ns());
    tracer.begin_step();
    work.run();
    r.hosts.push_back(tracer.end_step());
    r.memory_at_op.push_back(tracer.memory_at_op());
  }
  r.records.begins_ns.push_back(KernelTimes::now_ns());
  ctx.synchronize();
  r.records.kernels = times.stop();
  r.records.calls = times.calls();
  work.finish();
  return r;
}

TracedSteps summary(std::vector<Trace> steps, double attributed) {
  TracedSteps result;
  result.source = TraceSource::cupti;
  result.steps = std::move(steps);
  result.attributed = attributed;
  std::vector<double> seconds;
  seconds.reserve(result.steps.size());
  for (const Trace& t : result.steps) seconds.push_back(t.ms() / 1e3);
  result.traced = summarize(std::move(seconds));
  return result;
}

bool whole(const std::vector<StepKernels>& steps) {
  return !steps.empty() &&
         std::none_of(steps.begin(), steps.end(), [](const StepKernels& s) { return s.kernels.empty(); });
}

std::vector<StepKernels> steps_of(const StepRecords& records) {
  std::vector<StepKernels> steps = by_step(records);
  if (!whole(steps)) steps = by_count(records);
  if (!whole(steps))
    throw Error(cat("[cupti] ", records.kernels.size(), " records of kernels came from ",
                    records.begins_ns.size() - 1, " steps, and cannot be told apart"),
                "use --source events");
  return steps;
}

}  // namespace

TracedSteps trace_by_kernels(RankContext& ctx, const TracedWork& work, const TraceOptions& options,
                             KernelTimes& times, KernelOrder* order) {
  for (int i = 0; i < options.warmups; ++i) work.run();
  work.finish();
  Recorded r = record(ctx, work, steps_within(ctx, work, options), times, false, options.stacks);
  std::vector<StepKernels> steps = steps_of(r.records);
  const uint32_t stream = main_stream(r.records.kernels);
  std::vector<Trace> traces;
  double attributed = 1;
  for (std::size_t i = 1; i < steps.size(); ++i) {
    Trace& host = r.hosts[i];
    attribute_launched(steps[i], r.records, host.ops, stream);
    attributed = std::min(attributed, attributed_share(steps[i], stream));
    Trace t = trace_of(steps[i], steps[i - 1].end_ns, r.records.zero_ns, host.ops);
    t.memory = host.memory;
    place_memory(t, r.memory_at_op[i]);
    traces.push_back(std::move(t));
  }
  if (order != nullptr) {
    *order = order_of(steps.back(), stream);
    order->step = r.hosts.back();
    order->memory_at_op = r.memory_at_op.back();
  }
  return summary(std::move(traces), attributed);
}

TracedSteps trace_replays(RankContext& ctx, const TracedWork& work, const TraceOptions& options,
                          KernelTimes& times, const KernelOrder& order) {
  for (int i = 0; i < std::max(3, options.warmups); ++i) work.run();  // eager, captured, replayed
  work.finish();
  Recorded r = record(ctx, work, steps_within(ctx, work, options), times, true);
  std::vector<StepKernels> steps = steps_of(r.records);
  const uint32_t stream = main_stream(r.records.kernels);
  std::vector<Trace> traces;
  double attributed = 1;
  for (std::size_t i = 1; i < steps.size(); ++i) {
    attribute_replayed(steps[i], order, stream);
    attributed = std::min(attributed, attributed_share(steps[i], stream));
    Trace t = trace_of(steps[i], steps[i - 1].end_ns, r.records.zero_ns, order.step.ops);
    t.replayed = true;
    t.memory = order.step.memory;
    place_memory(t, order.memory_at_op);
    traces.push_back(std::move(t));
  }
  return summary(std::move(traces), attributed);
}

}  // namespace kiln
