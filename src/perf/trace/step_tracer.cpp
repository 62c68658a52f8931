#include "perf/trace/step_tracer.h"

#include <algorithm>
#include <array>

#include "autograd/tape.h"
#include "ops/add/add.h"
#include "perf/trace/nvtx_ranges.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double seconds_of(const TracedWork& work) {
  const Clock::time_point begin = Clock::now();
  work.run();
  work.finish();
  return seconds_since(begin);
}

// Enough steps, or all the time there was for them.
class Budget {
 public:
  explicit Budget(const TraceOptions& o) : options_(o), begin_(Clock::now()) {}
  bool over(std::size_t done) const {
    throw_if_stopped(options_.stop);
    if (done == 0) return false;
    return done >= static_cast<std::size_t>(options_.steps) || seconds_since(begin_) > options_.max_seconds;
  }
  int warm_up(const TracedWork& work) const {
    const NvtxRange range("warm-up");
    int done = 0;
    for (; done < options_.warmups; ++done) {
      throw_if_stopped(options_.stop);
      if (done > 0 && seconds_since(begin_) > options_.max_seconds / 3) break;
      (void)seconds_of(work);
    }
    return done;
  }

 private:
  const TraceOptions& options_;
  Clock::time_point begin_;
};

}  // namespace

std::string_view name_of(TraceSource s) {
  constexpr std::array<std::string_view, 3> kNames = {"clock", "cupti", "events"};
  return kNames[static_cast<std::size_t>(s)];
}

TracedSteps trace_by_clock(RankContext& ctx, const TracedWork& work, const TraceOptions& options) {
  const Budget budget(options);
  const int warmups = budget.warm_up(work);
  const NvtxRange capture("kiln_profile");
  OpTracer tracer(ctx);
  if (options.stacks) tracer.take_stacks();
  TracedSteps result;
  std::vector<double> plain, traced;
  while (!budget.over(result.steps.size())) {
    plain.push_back(seconds_of(work));
    const NvtxRanges ranges(ctx);
    tracer.attach();
    tracer.begin_step();
    traced.push_back(seconds_of(work));
    result.steps.push_back(tracer.end_step());
    tracer.detach();
  }
  result.timer = summarize(std::move(plain));
  result.timer.warmups = warmups;
  result.traced = summarize(std::move(traced));
  return result;
}

TracedSteps trace_by_events(RankContext& ctx, const TracedWork& work, const TraceOptions& options) {
  const Budget budget(options);
  budget.warm_up(work);
  OpTracer tracer(ctx, OpTracer::Clock::marks);
  if (options.stacks) tracer.take_stacks();
  tracer.attach();
  tracer.begin_step();  // makes the marks, and counts for nothing else
  (void)seconds_of(work);
  (void)tracer.end_step();
  TracedSteps result;
  result.source = TraceSource::events;
  const NvtxRange capture("kiln_profile");
  std::vector<double> traced;
  while (!budget.over(result.steps.size())) {
    const NvtxRanges ranges(ctx);
    tracer.begin_step();
    work.run();
    result.steps.push_back(tracer.end_step());
    work.finish();
    traced.push_back(result.steps.back().ms() / 1e3);
  }
  result.traced = summarize(std::move(traced));
  return result;
}

UntracedSteps time_untraced(RankContext& ctx, const TracedWork& work, const TraceOptions& options) {
  const Budget budget(options);
  UntracedSteps result;
  int warmups = budget.warm_up(work);
  for (; warmups < 3; ++warmups) (void)seconds_of(work);  // eager, captured, replayed
  StreamMarks marks(ctx);
  marks.mark();
  std::size_t steps = 0;
  while (!budget.over(steps)) {
    work.run();
    marks.mark();
    ++steps;
  }
  std::vector<double> samples;
  samples.reserve(steps);
  for (std::size_t i = 0; i < steps; ++i) samples.push_back(marks.ms_between(i, i + 1) / 1e3);
  work.finish();
  result.timer = summarize(std::move(samples));
  result.timer.warmups = warmups;
  std::vector<double> host;
  for (int i = 0; i < 3; ++i) {
    ctx.synchronize();
    const Clock::time_point begin = Clock::now();
    work.run();
    host.push_back(seconds_since(begin));
    work.finish();
  }
  result.host_ms = 1e3 * summarize(std::move(host)).p50;
  return result;
}

double smallest_op_ms(RankContext& ctx) {
  const GradModeGuard off(ctx, GradMode::off);
  const Tensor x = ctx.zeros({8}, DType::f32);
  const TimedRound round = [&](const TimedCall& timed) {
    timed(
        [&] {
          for (int i = 0; i < 16; ++i) (void)add(ctx, x, x);
        },
        16);
  };
  return 1e3 * time_queued(ctx, round, {.min_samples = 20, .min_seconds = 0.01, .max_seconds = 0.5}).p50;
}

}  // namespace kiln
