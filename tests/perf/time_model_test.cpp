#include "perf/model/time_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "perf/model/non_negative.h"

namespace kiln {
namespace {

// A machine whose matmuls take 2 us, 1 ps an operation and 0.3 ns a byte.
double planted(const CallShape& s) { return 2e-6 + 1e-12 * s.flops + 3e-10 * s.bytes; }

CallShape matmul(double m, double n, double k) { return {2 * m * n * k, 4 * (m * k + k * n + m * n), m, n}; }

TimedOp call_of(const CallShape& s, std::string_view op = "linear") {
  TimedOp t{op, "packed", Pass::forward, false, {s.flops, s.bytes}};
  t.rows = static_cast<int64_t>(s.rows);
  t.columns = static_cast<int64_t>(s.columns);
  return t;
}

Hardware machine() {
  Hardware h;
  h.name = "planted";
  h.bytes_per_s = 1e10;
  h.flops = {{"fp32", 2e12}};
  return h;
}

Hardware calibrated() {
  Hardware h = machine();
  Calibration c;
  c.dispatch = 5e-6;
  c.graph_gap = 1e-6;
  c.step = 1e-4;
  CallCurve curve{{"linear", "packed", "forward", "fp32", "fp32"}, {}};
  for (const double m : {16, 100, 300, 1000, 3000})
    for (const double n : {48, 200, 900, 2500})
      for (const double k : {64, 700, 1800})
        curve.calls.push_back({matmul(m, n, k), planted(matmul(m, n, k))});
  c.curves = {curve};
  h.calibration = c;
  return h;
}

TEST(NonNegative, SolvesWhatHasASolutionAndStopsAtZeroWhereItWouldBeBelow) {
  const std::vector<std::vector<double>> rows = {{1, 0, 1e9}, {0, 2, 1e9}, {1, 1, 0}, {3, 1, 2e9}};
  const std::vector<double> want = {2, 0.5, 3e-9};
  std::vector<double> y;
  for (const std::vector<double>& r : rows) y.push_back(r[0] * want[0] + r[1] * want[1] + r[2] * want[2]);
  const std::vector<double> x = non_negative_least_squares(rows, y);
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(x[i] / want[i], 1, 1e-6) << i;
  // y = 1 - x1 has its least squares at x1 = -1; with x1 >= 0 the other unknown is the mean.
  const std::vector<double> bound = non_negative_least_squares(
      std::vector<std::vector<double>>{{1, 0}, {1, 1}, {1, 2}}, std::vector<double>{3, 2, 1});
  EXPECT_NEAR(bound[0], 2, 1e-6);
  EXPECT_EQ(bound[1], 0);
}

TEST(TimeModel, WithoutACalibrationATimeIsTheRoofline) {
  const TimeModel model(machine(), DType::f32);
  EXPECT_EQ(model.kind(), TimeKind::roofline);
  const CallShape s = matmul(512, 512, 512);
  EXPECT_DOUBLE_EQ(model.seconds(call_of(s)), std::max(s.flops / 2e12, s.bytes / 1e10));
  const std::vector<TimedOp> ops = {call_of(s), call_of(s)};
  EXPECT_EQ(model.step(ops).between, 0);
}

TEST(TimeModel, AShapeBetweenThoseTimedIsPredictedFromThem) {
  const TimeModel model(calibrated(), DType::f32);
  EXPECT_EQ(model.kind(), TimeKind::predicted);
  for (const CallShape& s : {matmul(512, 512, 512), matmul(77, 1111, 333), matmul(2000, 64, 1200)})
    EXPECT_NEAR(model.seconds(call_of(s)) / planted(s), 1, 0.01) << s.rows;
}

// What no sum of rates says: around 200 columns a call takes 1.4 times as long, with fewer and with more it
// does not.
TEST(TimeModel, WhatShapesTakeBesideTheirRatesIsPredictedToo) {
  const auto slower = [](const CallShape& s) {
    const double away = std::log(s.columns / 200) / 0.8;
    return planted(s) * (1 + 0.4 * std::exp(-away * away));
  };
  Hardware h = calibrated();
  for (CalibratedCall& call : h.calibration->curves.front().calls) call.seconds = slower(call.shape);
  const TimeModel model(h, DType::f32);
  for (const CallShape& s : {matmul(150, 210, 300), matmul(600, 190, 900), matmul(600, 900, 500)})
    EXPECT_NEAR(model.seconds(call_of(s)) / slower(s), 1, 0.06) << s.rows << " x " << s.columns;
}

TEST(TimeModel, BeyondThoseTimedItFollowsTheirRates) {
  const TimeModel model(calibrated(), DType::f32);
  const CallShape s = matmul(20000, 8000, 4000);
  EXPECT_NEAR(model.seconds(call_of(s)) / planted(s), 1, 0.05);
}

TEST(TimeModel, AStepIsItsCallsAndWhatLiesBetweenThem) {
  const TimeModel model(calibrated(), DType::f32);
  const TimedOp op = call_of(matmul(300, 900, 700));
  const std::vector<TimedOp> ops(10, op);
  EXPECT_NEAR(model.step(ops).ops, 10 * model.seconds(op), 1e-9);
  EXPECT_NEAR(model.step(ops).between, 1e-4 + 10 * 5e-6, 1e-12);
  EXPECT_NEAR(model.step(ops, true).between, 1e-4 + 10 * 1e-6, 1e-12);
  EXPECT_EQ(model.step(ops).unknown, 0);
}

TEST(TimeModel, ACallThatWasNeverTimedIsAsFarFromItsRooflineAsItsClass) {
  const TimeModel model(calibrated(), DType::f32);
  TimedOp other = call_of(matmul(300, 900, 700));
  other.variant = "naive";
  EXPECT_FALSE(model.knows(other));
  EXPECT_GT(model.seconds(other), model.roofline(other.cost));
  const std::vector<TimedOp> ops = {other};
  EXPECT_EQ(model.step(ops).unknown, model.seconds(other));
}

// A device known from its data sheet, with the curves of one that was measured: as far from its own roofline.
TEST(TimeModel, WithAnotherDevicesCurvesACallIsAsFarFromItsRoofline) {
  const Hardware own = calibrated();
  Hardware twice = own;
  twice.calibrated_on = own.name;
  twice.curve_flops = own.flops;
  twice.curve_bytes_per_s = own.bytes_per_s;
  twice.flops = {{"fp32", 4e12}};
  twice.bytes_per_s = 2e10;
  const TimedOp op = call_of(matmul(300, 900, 700));
  EXPECT_NEAR(TimeModel(own, DType::f32).seconds(op) / TimeModel(twice, DType::f32).seconds(op), 2, 1e-9);
}

TEST(TimeModel, AFormatWithoutCurvesOfItsOwnHasNoPredictionOfOthers) {
  Hardware h = calibrated();
  h.flops.emplace_back("bf16", 4e12);
  EXPECT_EQ(TimeModel(h, DType::bf16).kind(), TimeKind::roofline);
  EXPECT_THROW(TimeModel(h, DType::f16), Error);
}

}  // namespace
}  // namespace kiln
