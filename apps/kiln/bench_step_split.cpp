#include "kiln/bench_step_split.h"

namespace kiln::cli {
namespace {

constexpr int kSplitSteps = 5;

}  // namespace

double StepSplit::ops_ms() const {
  double sum = 0;
  for (const TimedOp& op : ops) sum += op.ms;
  return sum;
}

StepSplit split_by_ops(RankContext& ctx, const StepSpec& spec) {
  StepRun step(ctx, spec);
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
  return {median_ops(steps), {}};
}

StepSplit split_by_kernels(RankContext& ctx, const StepSpec& spec, KernelTimes& times) {
  StepRun step(ctx, spec);
  for (int i = 0; i < 3; ++i) step.run();  // eager, captured, replayed
  step.finish();
  ctx.synchronize();
  times.start();
  for (int i = 0; i <= kSplitSteps; ++i) step.run();
  ctx.synchronize();
  StepSplit split;
  split.kernels = split_kernels(times.stop(), kSplitSteps);
  step.finish();
  return split;
}

}  // namespace kiln::cli
