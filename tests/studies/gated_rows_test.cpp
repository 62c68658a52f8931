// Rows of the studies carry what their check found, and nothing that fails it is timed.
#include <gtest/gtest.h>

#include "ops/swiglu/swiglu.h"
#include "studies/attention/attention.h"
#include "studies/gate/gate.h"
#include "studies/step/step.h"
#include "studies/warmup/warmup.h"

namespace kiln {
namespace {

BenchStepRequest small_request() {
  BenchStepRequest r;
  ModelOptions model;
  model.sizes = {"nano"};
  r.sizes = models_of(model);
  r.contexts = {32};
  r.batch = 2;
  r.precisions = {Precision::fp32};
  r.warmups = 1;
  r.steps = 2;
  r.threads = 2;
  r.device = Device::cpu();
  return r;
}

TEST(GatedRows, AStepThatIsRightIsTimedAndSaysThatItPassed) {
  std::string said;
  const BenchStepReport report =
      bench_step(small_request(), [&](const std::string& text) { said += text + "\n"; });
  ASSERT_EQ(report.rows.size(), 1U);
  EXPECT_EQ(report.rows[0].gate, Gate::passed) << report.rows[0].reason;
  EXPECT_TRUE(report.rows[0].timed());
  EXPECT_NE(said.find("checking swiglu"), std::string::npos) << said;
  EXPECT_NE(said.find("checking the step (2 blocks"), std::string::npos) << said;
}

TEST(GatedRows, AFailedCheckLeavesNoTimes) {
  RowOutcome row;
  GateReport report;
  report.gate = Gate::failed;
  report.reason = "swiglu: y is off by 1, 2e-7 is allowed";
  EXPECT_FALSE(note_gate(report, row));
  EXPECT_EQ(row.status, RowStatus::failed);
  EXPECT_EQ(row.gate, Gate::failed);
  EXPECT_EQ(row.reason, report.reason);
  row = {};
  report.gate = Gate::not_verified;
  report.reason = "no check knows x";
  EXPECT_TRUE(note_gate(report, row));  // timed, but no table of stored rows takes it
  EXPECT_TRUE(row.ok());
  EXPECT_EQ(row.gate, Gate::not_verified);
  EXPECT_EQ(row.reason, "not verified: no check knows x");
}

TEST(GatedRows, AWarmUpIsCheckedBehindItsSteps) {
  WarmupRequest request;
  request.step = small_request();
  request.step.graph = GraphChoice::off;
  int checks = 0;
  request.progress = [&](const std::string& text) { checks += text.rfind("checking", 0) == 0; };
  const WarmupReport report = bench_warmup(request);
  EXPECT_EQ(report.row.gate, Gate::passed) << report.row.reason;
  EXPECT_GT(checks, 10);
  EXPECT_EQ(report.run.steps.size(), 3U);
}

}  // namespace
}  // namespace kiln
