#include "studies/calibrate/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/error.h"
#include "model/model_options.h"
#include "studies/calibrate/kernel_samples.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

Hardware rates_only() {
  Hardware h;
  h.name = "planted";
  h.title = h.device = "Planted";
  h.from = "a test";
  h.measured = true;
  h.memory = 1e10;
  h.bytes_per_s = 1e10;
  h.flops = {{"fp32", 1e11}, {"bf16", 1e11}};
  return h;
}

// Steps of the whole design on a machine whose calls take what `seconds` says.
template <class Seconds>
std::vector<TimedStep> steps_on(double call, double once, Seconds seconds) {
  std::vector<TimedStep> all;
  for (const CalibrationStep& s : calibration_steps(Device::cpu())) {
    if (s.preset != "optimized") continue;
    TimedStep t{s, plan_step(s.spec(DeviceType::cpu), s.rank(Device::cpu(), 1, 0)).ops, {}, false};
    double sum = once;
    for (TimedOp& op : t.ops) {
      op.ms = 1e3 * seconds(op);
      sum += op.ms / 1e3 + call;
    }
    t.seconds = {sum, 1.1 * sum, sum};
    all.push_back(std::move(t));
  }
  return all;
}
double planted(const TimedOp& op) { return 1e-6 + 2e-11 * op.cost.flops + 3e-10 * op.cost.bytes; }

TEST(Calibrate, NoModelOfTheDesignIsOneKnownByName) {
  for (const DeviceType device : {DeviceType::cpu, DeviceType::cuda}) {
    for (const CalibrationShape& s : calibration_shapes(device)) {
      check_config(config_of(s));
      for (const ModelSize& known : model_sizes())
        EXPECT_FALSE(known.d_model == s.d_model && known.d_ff == s.d_ff) << known.name;
    }
  }
}

TEST(Calibrate, ACurveHasTheMedianOfEachShape) {
  std::vector<TimedStep> steps = steps_on(0, 0, planted);
  steps.resize(1);
  std::vector<TimedStep> thrice(3, steps.front());
  for (TimedOp& op : thrice[1].ops) op.ms *= 3;
  for (TimedOp& op : thrice[2].ops) op.ms *= 1.5;
  std::size_t calls = 0;
  for (const CallCurve& curve : curves_of(thrice)) {
    EXPECT_EQ(curve.key.compute, "bf16");
    for (const CalibratedCall& call : curve.calls) {
      const double once = 1e-6 + 2e-11 * call.shape.flops + 3e-10 * call.shape.bytes;
      EXPECT_NEAR(call.seconds / once, 1.5, 1e-9);
      ++calls;
    }
  }
  EXPECT_GT(calls, 10u);
}

TEST(Calibrate, EveryPresetAndFormatHasCurves) {
  std::set<std::string> formats, variants;
  std::vector<TimedStep> steps;
  for (const CalibrationStep& s : calibration_steps(Device::cpu())) {
    if (s.shape > 0) continue;
    steps.push_back({s, plan_step(s.spec(DeviceType::cpu), s.rank(Device::cpu(), 1, 0)).ops, {1}, false});
    for (TimedOp& op : steps.back().ops) op.ms = 1;
  }
  for (const CallCurve& curve : curves_of(steps)) {
    formats.insert(curve.key.compute);
    if (curve.key.op == "rope") variants.insert(curve.key.variant);
  }
  EXPECT_EQ(formats, (std::set<std::string>{"bf16", "fp32"}));
  EXPECT_EQ(variants, (std::set<std::string>{"fused", "naive"}));
}

TEST(Calibrate, WhatLiesBetweenCallsIsFoundAndNothingIsBelowZero) {
  const GapFit gap = fit_gaps(steps_on(4e-6, 3e-5, planted), false);
  EXPECT_NEAR(gap.call / 4e-6, 1, 1e-6);
  EXPECT_NEAR(gap.step / 3e-5, 1, 1e-5);
  const GapFit none = fit_gaps(steps_on(-4e-6, 0, planted), false);
  EXPECT_GE(none.call, 0);
  EXPECT_GE(none.step, 0);
  EXPECT_EQ(fit_gaps(steps_on(4e-6, 3e-5, planted), true).call, 0);  // none was replayed
}

TEST(Calibrate, AMachineThatIsASumOfRatesIsPredictedFromOtherModels) {
  const OwnError error = leave_one_out(rates_only(), steps_on(4e-6, 3e-5, planted));
  EXPECT_GT(error.steps, 30);
  EXPECT_LT(error.median, 0.01);
  EXPECT_LT(error.worst, 0.05);
}

TEST(Calibrate, AMachineThatChangesItsSpeedBetweenRoundsIsSeen) {
  std::vector<TimedStep> steps = steps_on(0, 0, planted);
  EXPECT_EQ(drift_of(steps).models, 0);
  const std::vector<TimedStep> first = steps;
  steps.insert(steps.end(), first.begin(), first.end());
  EXPECT_EQ(drift_of(steps).models, static_cast<int>(first.size()));
  EXPECT_TRUE(drift_of(steps).steady());
  for (double& s : steps.back().seconds) s *= 1.5;
  EXPECT_NEAR(drift_of(steps).most, 1.5, 1e-9);
  EXPECT_FALSE(drift_of(steps).steady());
}

// A machine that is slower by turns cannot be predicted, and the figure must say so.
TEST(Calibrate, WhatNoOtherModelTellsShowsInTheError) {
  int n = 0;
  const OwnError error = leave_one_out(rates_only(), steps_on(0, 0, [&n](const TimedOp& op) {
                                         return planted(op) * (++n / 100 % 2 == 0 ? 1 : 2.5);
                                       }));
  EXPECT_GT(error.worst, 0.2);
}

TEST(Calibrate, KernelsThatOverlapCountOnce) {
  Trace trace;
  trace.ops.resize(3);
  trace.begin_us = 100;
  trace.end_us = 200;
  const auto span = [](int op, double begin, double end) {
    TraceSpan s;
    s.op = op;
    s.begin_us = begin;
    s.end_us = end;
    return s;
  };
  trace.spans = {span(0, 100, 120), span(1, 115, 140), span(-1, 140, 150), span(2, 145, 148),
                 span(2, 160, 170)};
  const std::vector<double> ms = device_ms_of_ops(trace);
  EXPECT_DOUBLE_EQ(ms[0], 0.020);
  EXPECT_DOUBLE_EQ(ms[1], 0.020);
  EXPECT_DOUBLE_EQ(ms[2], 0.010);
}

TEST(Calibrate, AFewSecondsOfThisMachineGiveAFileThatPredictsItsOwnModels) {
  const CalibrateReport report =
      calibrate({.device = Device::cpu(), .seconds = 1.5}, [](const std::string&) {});
  ASSERT_TRUE(report.hardware.calibration);
  EXPECT_GT(report.steps, 4);
  EXPECT_GT(report.skipped, 0);
  EXPECT_GT(report.hardware.calibration->clock_hz, 1e8);
  EXPECT_GE(report.hardware.calibration->links.size(), 1u);
  const TempFolder folder;
  const std::string path = write_calibration(folder.path(), report);
  const KnownMachine known = known_machine(folder.path(), machine_of(Device::cpu(), 0));
  EXPECT_EQ(known.path, path);
  EXPECT_EQ(known.note, "");
  const CalibrationStep first = calibration_steps(Device::cpu()).front();
  const TimeModel model(*known.hardware, policy_of(first.precision).compute);
  const StepPlan plan = plan_step(first.spec(DeviceType::cpu), first.rank(Device::cpu(), 0, 0));
  const StepTime time = model.step(plan.ops);
  EXPECT_GT(time.ops, 0);
  EXPECT_EQ(time.unknown, 0);
}

TEST(Calibrate, MetaHasNothingToCalibrate) {
  EXPECT_THROW((void)calibrate({.device = Device::meta()}, [](const std::string&) {}), Error);
}

}  // namespace
}  // namespace kiln
