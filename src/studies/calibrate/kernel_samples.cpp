#include "studies/calibrate/kernel_samples.h"

#include <algorithm>

#include "studies/step/traced_step.h"

namespace kiln {
namespace {

TracedSteps traced(const StepSamplesRequest& request, const CalibrationStep& step, int steps) {
  const StepSpec spec = step.spec(request.device.type);
  const RankOptions rank = step.rank(request.device, request.threads, request.seed);
  const TraceOptions options{.steps = steps};
  KernelTimes times(false);
  OutOfMemory full;
  KernelOrder order;
  TracedSteps launched;
  {
    TracedStep eager_step(rank, {}, eager(spec), full);
    launched = trace_by_kernels(eager_step.ctx, eager_step.work, options, times, &order);
  }
  if (!spec.step.graph) return launched;
  TracedStep replayed(rank, {}, spec, full);
  return trace_replays(replayed.ctx, replayed.work, options, times, order);
}

}  // namespace

std::vector<double> device_ms_of_ops(const Trace& trace) {
  std::vector<double> ms(trace.ops.size());
  double done = trace.begin_us;
  for (const TraceSpan& span : trace.spans) {  // by their beginning
    const double from = std::max(span.begin_us, done);
    if (span.op >= 0 && span.end_us > from)
      ms[static_cast<std::size_t>(span.op)] += (span.end_us - from) / 1e3;
    done = std::max(done, span.end_us);
  }
  return ms;
}

TimedStep time_by_kernels(const StepSamplesRequest& request, const CalibrationStep& step, int steps) {
  if (const std::string why = why_no_kernel_times(); !why.empty())
    throw Error(
        cat("calibrating a GPU needs CUPTI: ", why),
        "it comes with the CUDA toolkit: put its lib64 or extras/CUPTI/lib64 folder into LD_LIBRARY_PATH",
        ErrorKind::unavailable);
  const TracedSteps all = traced(request, step, steps);
  const StepPlan plan =
      plan_step(step.spec(request.device.type), step.rank(request.device, request.threads, request.seed));
  TimedStep timed{step, plan.ops, {}, all.steps.front().replayed};
  std::vector<std::vector<double>> samples(plan.ops.size());
  for (const Trace& trace : all.steps) {
    const std::vector<double> ms = device_ms_of_ops(trace);
    if (ms.size() != plan.ops.size())
      throw Error(cat("a traced step ran ", ms.size(), " ops, and the plan has ", plan.ops.size()));
    for (std::size_t i = 0; i < ms.size(); ++i) samples[i].push_back(ms[i]);
    timed.seconds.push_back(trace.ms() / 1e3);
  }
  for (std::size_t i = 0; i < samples.size(); ++i) timed.ops[i].ms = summarize(std::move(samples[i])).p50;
  return timed;
}

}  // namespace kiln
