// Clocks and steps on a GPU.
#include <gtest/gtest.h>

#include "kiln/bench_step.h"
#include "perf/device_ceilings.h"
#include "support/gpu.h"

namespace kiln {
namespace {

class CudaStepClock : public testing::Test {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }
  static RankOptions gpu() {
    RankOptions o;
    o.device = Device::cuda();
    return o;
  }
};

TEST_F(CudaStepClock, MarksSeeWhatTheStreamDoesAndNotWhatTheHostDoes) {
  RankContext ctx(gpu());
  StreamMarks marks(ctx);
  marks.mark();
  ctx.backend().hold(ctx.compute(), 0.02);
  marks.mark();
  marks.mark();
  EXPECT_GE(marks.ms_between(0, 1), 19);
  EXPECT_LT(marks.ms_between(1, 2), 19);
  EXPECT_LT(empty_span_ms(ctx), 1);
}

TEST_F(CudaStepClock, CeilingsAreThoseOfTheLibrarysProduct) {
  RankContext ctx(gpu());
  const DeviceCeilings c = measure_device_ceilings(
      ctx, {.dtypes = {DType::bf16, DType::f32}, .copy = {1 << 26}, .product = 1024, .seconds_each = 1e-3});
  EXPECT_GT(c.copy, 0);
  EXPECT_EQ(c.products.at(0).variant, "lt");
  EXPECT_GT(c.flops_for(DType::f32), 0);
}

TEST_F(CudaStepClock, TheTimedStepIsAGraphAndItsPeakThePredictedOne) {
  cli::BenchStepRequest r;
  r.sizes = {find_model_size("nano")};
  r.contexts = {33};
  r.precisions = {Precision::bf16, Precision::fp32};
  r.presets = {"baseline", "optimized"};
  r.modes = {StepMode::forward, StepMode::forward_backward, StepMode::full};
  r.batch = 3;
  r.micro_steps = 2;
  r.warmups = 2;
  r.steps = 4;
  r.split = true;
  r.device = Device::cuda();
  r.begun = std::chrono::steady_clock::now();
  cli::check_bench_step(r);
  const cli::BenchStepReport report = cli::bench_step(r, [](const std::string&) {});
  ASSERT_EQ(report.rows.size(), 12U);
  for (const cli::StepRow& row : report.rows) {
    ASSERT_TRUE(row.timed()) << row.variant_set() << ": " << row.reason;
    EXPECT_EQ(row.captured, row.preset == "optimized") << row.variant_set();
    EXPECT_EQ(row.measured.peak_total, row.predicted.peak_total) << row.variant_set();
    ASSERT_TRUE(row.split);
    EXPECT_EQ(row.split->ops.size(), row.planned.size()) << row.variant_set();
    EXPECT_GT(row.split->sum_ms(), 0);
  }
}

}  // namespace
}  // namespace kiln
