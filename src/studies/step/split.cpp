#include "studies/step/split.h"

namespace kiln {
namespace {

constexpr int kSplitSteps = 5;

}  // namespace

double StepSplit::ops_ms() const {
  double sum = 0;
  for (const TimedOp& op : ops) sum += op.ms;
  return sum;
}

StepSplit split_by_ops(RankContext& ctx, const StepSpec& spec) {
  SyntheticStep step(ctx, spec);
  step.run();
  step.finish();
  OpTimes times(ctx);
  std::vector<std::vector<TimedOp>> steps;
  for (int i = 0; i <= kSplitSteps; ++i) {  // the first makes the marks and counts for nothing else
    times.clear();
    step.run();
    step.finish();
    if (i > 0) steps.push_back(times.take());
  }
  return {median_ops(steps), {}, 1};
}

StepSplit split_by_kernels(const RankOptions& rank, const std::optional<TuneFile>& tuning,
                           const StepSpec& spec, OutOfMemory& full, KernelTimes& times) {
  const TraceOptions options{.steps = kSplitSteps};
  KernelOrder order;
  StepSplit split;
  const auto keep = [&](const TracedSteps& traced) {
    split.kernels = split_of(traced.steps);
    split.attributed = traced.attributed;
  };
  {
    TracedStep launched(rank, tuning, eager(spec), full);
    keep(trace_by_kernels(launched.ctx, launched.work, options, times, &order));
  }
  if (!spec.step.graph) return split;
  TracedStep replayed(rank, tuning, spec, full);
  keep(trace_replays(replayed.ctx, replayed.work, options, times, order));
  return split;
}

}  // namespace kiln
