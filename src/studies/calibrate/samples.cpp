#include "studies/calibrate/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "device/device_room.h"
#include "studies/calibrate/kernel_samples.h"
#include "studies/variant_check.h"
#include "train/presets.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 2;
constexpr int kLeastSteps = 3, kMostSteps = 12;
constexpr double kSecondsEach = 0.3;   // of the steps of a model in a round
constexpr double kRateAtWorst = 0.08;  // of the roofline, of a step that nobody has timed yet

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A step of the design, and what is known of it before it runs.
struct Planned {
  CalibrationStep step;
  double expected = 0;  // seconds; what it might take at worst, until it was timed
  std::size_t peak = 0;
};

std::vector<Planned> plan_all(const StepSamplesRequest& request) {
  std::vector<Planned> all;
  for (const CalibrationStep& step : calibration_steps(request.device)) {
    const StepPlan plan =
        plan_step(step.spec(request.device.type), step.rank(request.device, request.threads, request.seed));
    const Rates rates{request.hardware.flops_of(name_of(policy_of(step.precision).compute)),
                      request.hardware.copy_rate()};
    double bound = 0;
    for (const TimedOp& op : plan.ops)
      bound += std::max(op.cost.flops / rates.flops, op.cost.bytes / rates.bytes);
    all.push_back({step, bound / kRateAtWorst, plan.memory.peak_total});
  }
  return all;
}

// Op by op with marks between them, which on the CPU cost a reading of the clock.
TimedStep time_by_ops(const StepSamplesRequest& request, const CalibrationStep& step, int steps) {
  RankContext ctx(step.rank(request.device, request.threads, request.seed));
  SyntheticStep model(ctx, step.spec(request.device.type));
  TimedStep timed{step, {}, {}, false};
  std::vector<std::vector<TimedOp>> all;
  model.run();  // allocates
  (void)model.finish();
  OpTimes ops(ctx);
  for (int i = 0; i <= steps; ++i) {  // the first makes the marks, too
    ops.clear();
    const auto begin = Clock::now();
    model.run();
    (void)model.finish();
    if (i == 0) continue;
    timed.seconds.push_back(seconds_since(begin));
    all.push_back(ops.take());
  }
  timed.ops = median_ops(all);
  return timed;
}

std::string name_of_step(const CalibrationStep& s, const Device& device) {
  const CalibrationShape& shape = calibration_shapes(device.type)[static_cast<std::size_t>(s.shape)];
  return fmt::format("width {}, {} tokens, {} {}", shape.d_model, shape.tokens(), name_of(s.precision),
                     s.preset);
}

}  // namespace

StepSpec CalibrationStep::spec(DeviceType device) const {
  const CalibrationShape& s = calibration_shapes(device)[static_cast<std::size_t>(shape)];
  StepSpec spec;
  spec.model = config_of(s);
  choose_variants(preset, "", device).apply_to(spec.model);
  spec.precision = precision;
  spec.mode = StepMode::full;
  spec.step.batch = s.batch;
  spec.step.context = s.context;
  spec.step.graph = device == DeviceType::cuda && preset != "baseline";
  return spec;
}

RankOptions CalibrationStep::rank(const Device& device, int threads, uint64_t seed) const {
  RankOptions o = options_for(device, threads, seed);
  o.variants = choose_variants(preset, "", device.target).ops;
  return o;
}

std::vector<CalibrationStep> calibration_steps(const Device& device) {
  std::vector<CalibrationStep> steps;
  const int shapes = static_cast<int>(calibration_shapes(device.type).size());
  for (int shape = 0; shape < shapes; ++shape) {
    for (const Precision precision : {Precision::bf16, Precision::fp32}) {
      for (const char* preset : {"optimized", "baseline"}) steps.push_back({shape, precision, preset});
    }
  }
  return steps;
}

Samples take_samples(const StepSamplesRequest& request,
                     const std::function<void(const std::string&)>& progress) {
  const auto begun = Clock::now();
  std::vector<Planned> all = plan_all(request);
  const std::size_t memory = free_memory_on(request.device);
  Samples samples;
  for (int round = 0; round < kRounds; ++round) {
    const double until = request.seconds * (round + 1) / kRounds;
    for (Planned& p : all) {
      samples.stopped = request.stop && request.stop();
      if (samples.stopped) return samples;
      const double left = until - seconds_since(begun);
      if (p.peak > memory || p.expected * (kLeastSteps + 2) > left) {
        samples.skipped += round == 0;
        continue;
      }
      progress(fmt::format("round {} of {}: {}", round + 1, kRounds, name_of_step(p.step, request.device)));
      const int steps = std::clamp(static_cast<int>(kSecondsEach / p.expected), kLeastSteps, kMostSteps);
      samples.steps.push_back(request.device.type == DeviceType::cuda
                                  ? time_by_kernels(request, p.step, steps)
                                  : time_by_ops(request, p.step, steps));
      p.expected = summarize(samples.steps.back().seconds).p50;
    }
  }
  return samples;
}

}  // namespace kiln
