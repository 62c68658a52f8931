#include "studies/measure/measure.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "rows/row_values.h"
#include "studies/calc/step_theory.h"
#include "studies/row_tables.h"

namespace kiln {
namespace {

MeasureRequest little_request() {
  MeasureRequest r;
  r.step.sizes = {NamedModel(find_model_size("nano"))};
  r.step.contexts = {16};
  r.step.precisions = {Precision::fp32};
  r.step.batch = 2;
  r.step.warmups = 1;
  r.step.steps = 3;
  r.step.device = Device::cpu();
  r.step.threads = 1;
  return r;
}

MeasuredStep only_step(const MeasureRequest& r) {
  std::vector<MeasuredStep> steps = measure_steps({&r, 1}, false, [](const std::string&) {});
  EXPECT_EQ(steps.size(), 1u);
  return std::move(steps.front());
}

// The same configuration, as kiln calc flops is asked.
StepTheory theory_of(const MeasureRequest& r) {
  StepTheoryRequest q;
  q.model = r.step.sizes.front();
  q.batch = r.step.batch;
  q.context = r.step.contexts.front();
  q.micro_steps = r.step.micro_steps;
  q.precision = r.step.precisions.front();
  q.mode = r.step.modes.front();
  q.preset = r.step.presets.front();
  q.variants = r.step.variants;
  q.recompute = r.step.recompute;
  q.hardware.kind = DeviceType::cpu;
  return step_theory(q);
}

TEST(Measure, ExecutedFlopsAreThoseCalcFlopsPredicts) {
  std::vector<MeasureRequest> requests(6, little_request());
  requests[1].step.precisions = {Precision::bf16};
  requests[1].step.micro_steps = 3;
  requests[2].step.presets = {"baseline"};
  requests[3].step.recompute = Recompute{Recompute::Kind::every, 1};
  requests[4].step.modes = {StepMode::forward};
  requests[4].step.variants = "attention=naive";
  requests[5].step.modes = {StepMode::forward_backward};
  requests[5].step.precisions = {Precision::autocast};
  for (const MeasureRequest& r : requests) {
    const MeasuredStep step = only_step(r);
    ASSERT_TRUE(step.timed()) << step.row.reason;
    const StepTheory theory = theory_of(r);
    EXPECT_EQ(step.executed().flops, theory.flops()) << step.row.variant_set();
    double bytes = 0;
    int calls = 0;
    for (const TheoryOp& op : theory.ops) {
      bytes += op.cost.bytes;
      calls += op.calls;
    }
    EXPECT_NEAR(step.executed().bytes, bytes, 1e-9 * bytes) << step.row.variant_set();
    EXPECT_EQ(static_cast<int>(step.ran.size()), calls) << step.row.variant_set();
  }
}

TEST(Measure, ARowSaysWhatWasExecutedHeldAndTaken) {
  MeasureRequest r = little_request();
  r.step.presets = {"baseline", "optimized"};
  const MeasureReport report = measure(r, [](const std::string&) {});
  const std::vector<Json> rows = rows_of(measure_result_lines(report));
  ASSERT_EQ(rows.size(), 2u);
  for (const Json& row : rows) {
    EXPECT_EQ(text_at(row, "command"), "measure");
    EXPECT_EQ(text_at(row, "gate"), "passed");
    EXPECT_EQ(*number_at(row, "peak_bytes"), *number_at(row, "predicted_peak_bytes"));
    double flops = 0, calls = 0;
    for (const Json& op : row.at("by_op")) {
      flops += number_at(op, "flops").value_or(0);
      calls += number_at(op, "calls").value_or(0);
      EXPECT_GE(*number_at(op, "measured_ms"), 0);
    }
    EXPECT_EQ(flops, *number_at(row, "flops"));
    EXPECT_EQ(calls, *number_at(row, "op_calls"));
  }
  EXPECT_GT(*number_at(rows[0], "op_calls"), *number_at(rows[1], "op_calls"));
  EXPECT_NE(written(measure_page(report), PageFormat::text).find("op calls"), std::string::npos);
}

TEST(Measure, ARankOfSeveralExecutesItsShareAndSaysWhatItSends) {
  MeasureRequest r = little_request();
  r.strategy = "ddp:flat";
  r.ranks = 2;
  const MeasuredStep step = only_step(r);
  ASSERT_TRUE(step.timed()) << step.row.reason;
  EXPECT_EQ(step.row.gate, Gate::passed);
  const StepTheory theory = theory_of(r);
  double norm = 0;  // of the gradients: each rank sums its part
  for (const TheoryOp& op : theory.ops) norm += op.op == "square_sum" ? op.cost.flops : 0;
  EXPECT_NEAR(step.executed().flops, theory.flops() - norm / 2, 64);  // parts are padded
  const double parameters = 4.0 * static_cast<double>(param_count(r.step.sizes.front()));
  EXPECT_GE(step.share->sent, parameters);  // an all-reduce of fp32 gradients between two
  EXPECT_EQ(step.tokens(), 2 * step.row.tokens());
}

TEST(Measure, RanksNeedAStrategyAndAStrategyRanks) {
  MeasureRequest r = little_request();
  r.ranks = 2;
  EXPECT_THROW(check_measure(r), Error);
  r.strategy = "zero1";
  EXPECT_NO_THROW(check_measure(r));
  r.step.modes = {StepMode::forward};
  EXPECT_THROW(check_measure(r), Error);
  r.step.modes = {StepMode::full};
  r.ranks = 1;
  EXPECT_THROW(check_measure(r), Error);
}

TEST(Measure, AnOpWithoutACostIsAnErrorThatNamesIt) {
  std::vector<TimedOp> ops = {{"add", "naive", Pass::forward, false, {1, 0}},
                              {"swiglu", "fused", Pass::backward, false, {0, 0}}};
  try {
    check_costs(ops);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("[swiglu] variant fused"), std::string::npos) << e.what();
  }
  ops.back().cost.bytes = 1;
  EXPECT_NO_THROW(check_costs(ops));
}

TEST(Measure, KernelsAreChargedToTheirCallsAndGapsToTheNextOne) {
  Trace t;
  t.begin_us = 1000;
  t.end_us = 11000;
  const auto span = [&](int op, double begin, double end) {
    t.spans.push_back({TraceLane::gpu, KernelGroup::matmul, "k", op, begin, end});
  };
  span(0, 2000, 4000);
  span(1, 3000, 5000);   // begins while the first runs
  span(-1, 5000, 6000);  // a copy of nobody's
  span(1, 7000, 8000);
  span(2, 8000, 12000);  // ends behind the step
  const StepCalls s = calls_of(t, 3);
  EXPECT_EQ(s.ms, (std::vector<double>{2, 2, 3}));
  EXPECT_EQ(s.before, (std::vector<double>{1, 1, 0}));
  EXPECT_NEAR(s.outside(), 1, 1e-12);
  EXPECT_EQ(s.wall, 10);
}

TEST(Measure, MediansOfPartsAndTheirRestAreTheMedianStep) {
  const std::vector<StepCalls> steps = {{10, {4, 3}, {0, 1}}, {12, {7, 2}, {0, 1}}, {20, {5, 9}, {0, 2}}};
  const CallTimes t = call_times(steps);
  EXPECT_EQ(t.best, (std::vector<double>{4, 2}));
  EXPECT_EQ(t.typical, (std::vector<double>{5, 3}));
  EXPECT_EQ(t.step, 12);
  EXPECT_NEAR(t.outside + t.residual + 5 + 3 + 0 + 1, 12, 1e-12);
  EXPECT_THROW(call_times({}), Error);
  EXPECT_THROW(call_times({{10, {4, 3}, {0, 1}}, {10, {4}, {0}}}), Error);
}

}  // namespace
}  // namespace kiln
