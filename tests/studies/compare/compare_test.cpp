#include "studies/compare/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <numeric>

#include "base/build_info.h"
#include "perf/model/machine.h"
#include "rows/row_values.h"
#include "studies/compare/render.h"
#include "studies/row_tables.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

CompareRequest little_request() {
  CompareRequest q;
  BenchStepRequest& r = q.measure.step;
  r.sizes = {NamedModel(find_model_size("nano"))};
  r.contexts = {16};
  r.batch = 2;
  r.warmups = 1;
  r.steps = 4;
  r.device = Device::cpu();
  r.threads = 1;
  return q;
}

CompareReport run(const CompareRequest& q) {
  return compare_steps({&q, 1}, [](const std::string&) {});
}

double sum_of_causes(const Gap& g) {
  return std::accumulate(g.causes.begin(), g.causes.end(), 0.0,
                         [](double all, const Cause& c) { return all + c.ms; });
}

void expect_sums(const ComparedStep& s) {
  double measured = 0, roofline = 0;
  for (const ComparedOp& op : s.ops) {
    EXPECT_NEAR(sum_of_causes(op.gap), op.gap.ms(), 1e-9) << op.op;
    measured += op.gap.measured;
    roofline += op.gap.roofline;
  }
  EXPECT_NEAR(measured, s.gap.measured, 1e-9);
  EXPECT_NEAR(roofline, s.gap.roofline, 1e-9);
  EXPECT_NEAR(sum_of_causes(s.gap), s.gap.ms(), 1e-9);
  for (int k = 0; k < kCauseKinds; ++k) {
    const auto kind = static_cast<CauseKind>(k);
    double of_ops = 0;
    for (const ComparedOp& op : s.ops) of_ops += op.gap.of(kind);
    EXPECT_NEAR(of_ops, s.gap.of(kind), 1e-9) << name_of(kind);
  }
}

// A step whose calls took what they are told to, whatever this machine does.
ComparedStep planted(const CompareRequest& q, double of_roofline, const Hardware& h) {
  ComparedStep step;
  step.measured.row = step_rows(q.measure.step).front();
  EXPECT_TRUE(plan_row(q.measure.step, step.measured.row));
  step.measured.ran = step.measured.row.planned;
  const Rates rates{h.flops_of("fp32"), h.copy_rate()};
  for (int i = 0; i < 4; ++i) {
    StepCalls calls;
    for (const TimedOp& op : step.measured.ran) {
      calls.ms.push_back(of_roofline * op.floor_ms(rates));
      calls.before.push_back(1e-6);
    }
    calls.wall = 0.001;
    for (std::size_t c = 0; c < calls.ms.size(); ++c) calls.wall += calls.ms[c] + calls.before[c];
    step.measured.steps.push_back(std::move(calls));
  }
  step.facts.steps = 4;
  explain_step(step, TimeModel(h, DType::f32), DType::f32, CpuIsa::plain);
  return step;
}

CompareRequest fp32_request() {
  CompareRequest q = little_request();
  q.measure.step.precisions = {Precision::fp32};
  return q;
}

Hardware hardware() {
  Hardware h;
  h.name = h.title = "planted";
  h.bytes_per_s = 1e10;
  h.flops = {{"fp32", 1e11}};
  return h;
}

const ComparedOp& find(const ComparedStep& s, const std::string& op, const std::string& pass) {
  for (const ComparedOp& row : s.ops)
    if (row.op == op && row.pass == pass) return row;
  throw std::runtime_error("no " + op + " " + pass);
}

TEST(Compare, ACalibrationSaysWhatShapesTakeAndWithoutOneThatIsUnexplained) {
  Hardware h = hardware();
  const ComparedStep without = planted(fp32_request(), 3, h);
  expect_sums(without);
  const ComparedOp& linear = find(without, "linear", "forward");
  EXPECT_FALSE(linear.predicted);
  EXPECT_EQ(linear.gap.of(CauseKind::shape_rate), 0);
  EXPECT_GT(linear.gap.of(CauseKind::unexplained), linear.gap.roofline);

  Calibration c;
  c.threads = 1;
  CallCurve curve;
  for (const TimedOp& op : without.measured.ran) {
    if (op.op != std::string_view("linear") || op.pass != Pass::forward) continue;
    curve.key = key_of(op, DType::f32);
    curve.calls.push_back({shape_of(op), 2e-3 * op.floor_ms({1e11, 1e10})});
  }
  c.curves = {curve};
  h.calibration = c;
  const ComparedStep with = planted(fp32_request(), 3, h);
  expect_sums(with);
  const ComparedOp& known = find(with, "linear", "forward");
  ASSERT_TRUE(known.predicted);
  EXPECT_NEAR(*known.predicted, 2 * known.gap.roofline, 0.05 * known.gap.roofline);
  EXPECT_NEAR(known.gap.of(CauseKind::shape_rate) + known.gap.of(CauseKind::tiles), known.gap.roofline,
              0.05 * known.gap.roofline);
  EXPECT_TRUE(with.predicted);
}

TEST(Compare, RecomputedWorkIsAGapThatRecomputationExplains) {
  CompareRequest q = fp32_request();
  q.measure.step.recompute = Recompute{Recompute::Kind::every, 1};
  const ComparedStep s = planted(q, 1, hardware());
  expect_sums(s);
  const ComparedOp& again = find(s, "linear", "recomputed");
  EXPECT_EQ(again.gap.roofline, 0);
  EXPECT_NEAR(again.gap.of(CauseKind::recompute), again.executed_roofline, 1e-12);
  EXPECT_GT(s.gap.of(CauseKind::recompute), 0);
  EXPECT_EQ(planted(fp32_request(), 1, hardware()).gap.of(CauseKind::recompute), 0);
}

TEST(Compare, CastsAreCopies) {
  CompareRequest q = little_request();
  q.measure.step.precisions = {Precision::autocast};
  Hardware h = hardware();
  const ComparedStep s = planted(q, 1, h);
  expect_sums(s);
  EXPECT_GT(s.gap.of(CauseKind::copies), 0);
  EXPECT_EQ(planted(fp32_request(), 1, h).gap.of(CauseKind::copies), 0);
}

TEST(Compare, ARowOfAMeasuredStepAddsUp) {
  const CompareReport report = run(little_request());
  ASSERT_EQ(report.steps.size(), 1u);
  const ComparedStep& step = report.steps.front();
  ASSERT_TRUE(step.timed()) << step.measured.row.reason;
  expect_sums(step);
  EXPECT_EQ(step.ops.back().op, kOutside);
  EXPECT_NE(report.prediction.find("kiln doctor --calibrate"), std::string::npos) << report.prediction;
  const Json row = rows_of(compare_result_lines(report)).at(0);
  EXPECT_EQ(text_at(row, "gate"), "passed");
  EXPECT_NEAR(*number_at(row, "measured_ms"), *number_at(row, "p50_ms"), 1e-9);
  EXPECT_TRUE(row.at("predicted_ms").is_null());
  double gap = 0;
  for (const Json& cause : row.at("causes")) {
    gap += *number_at(cause, "ms");
    EXPECT_FALSE(text_at(cause, "evidence").empty());
  }
  EXPECT_NEAR(gap, *number_at(row, "gap_ms"), 1e-9);
}

TEST(Compare, ThisMachinesCalibrationGivesRatesAndPredictedTimes) {
  const TempFolder folder;
  CompareRequest q = little_request();
  q.measure.step.folder = folder.path();
  const Machine here = machine_of(Device::cpu(), 1);
  Hardware h = hardware();
  h.from = "a test";
  h.device = here.device;
  h.memory = 1e9;
  h.measured = true;
  h.flops.emplace_back("bf16", 2e11);
  Calibration c;
  c.date = "2026-11-19";
  c.build = build_info().build_id;
  c.isa = here.isa;
  c.threads = here.threads;
  c.curves = {{{"linear", "packed", "forward", "bf16", "bf16"}, {{{1e6, 1e5, 32, 64}, 1e-3}}}};
  h.calibration = c;
  std::ofstream(folder.path() + "/" + hardware_file_name(here)) << hardware_text(h);
  const CompareReport report = run(q);
  const ComparedStep& step = report.steps.front();
  ASSERT_TRUE(step.timed()) << step.measured.row.reason;
  EXPECT_EQ(step.rates.flops, 2e11);
  EXPECT_TRUE(step.predicted);
  EXPECT_GT(step.unknown, 0);  // all but one kind of call
  EXPECT_EQ(report.prediction, "");
  expect_sums(step);
  EXPECT_NE(written(compare_page(report), PageFormat::text).find("Predicted: "), std::string::npos);
}

TEST(Compare, TheTableFitsAHundredColumnsAndItsNotesNameCauses) {
  const CompareReport report = run(little_request());
  const std::string page = written(compare_page(report), PageFormat::text);
  std::size_t from = page.find("op  "), lines = 0;
  for (; lines < 10; ++lines) {
    const std::size_t end = page.find('\n', from);
    EXPECT_LE(end - from, 100u) << page.substr(from, end - from);
    from = end + 1;
  }
  EXPECT_NE(page.find("The step takes "), std::string::npos) << page;
  EXPECT_NE(page.find("gap to the roofline by cause"), std::string::npos) << page;
  EXPECT_NE(written(compare_page(report, true), PageFormat::text).find("in calls"), std::string::npos);
}

TEST(Compare, AHardwareFileGivesTheRates) {
  CompareRequest q = little_request();
  q.hardware = "h100";
  const CompareReport report = run(q);
  EXPECT_FALSE(report.rates_measured);
  EXPECT_EQ(report.steps.front().rates.flops, find_hardware("h100").flops_of("bf16"));
  EXPECT_NE(written(compare_page(report), PageFormat::text).find("Rates of the rooflines"),
            std::string::npos);
}

}  // namespace
}  // namespace kiln
