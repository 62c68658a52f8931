// Clocks and steps on a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "perf/timing/device_ceilings.h"
#include "studies/step/step.h"
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
}

TEST_F(CudaStepClock, CeilingsAreThoseOfTheLibrarysMatmul) {
  RankContext ctx(gpu());
  const DeviceCeilings c = measure_device_ceilings(
      ctx, {.dtypes = {DType::bf16, DType::f32}, .copy = {1 << 26}, .product = 1024, .seconds_each = 1e-3});
  EXPECT_GT(c.copy, 0);
  EXPECT_EQ(c.products.at(0).variant, "lt");
  EXPECT_GT(c.flops_for(DType::f32), 0);
}

TEST_F(CudaStepClock, TheTimedStepIsAGraphAndItsPeakThePredictedOne) {
  BenchStepRequest r;
  r.sizes = {find_model_size("nano")};
  r.contexts = {33};
  r.precisions = {Precision::bf16, Precision::fp32};
  r.presets = {"baseline", "optimized"};
  r.modes = {StepMode::forward, StepMode::forward_backward, StepMode::full};
  r.batch = 3;
  r.micro_steps = 2;
  r.warmups = 2;
  r.steps = 4;
  r.split = why_no_kernel_times().empty();
  r.device = Device::cuda();
  r.begun = std::chrono::steady_clock::now();
  check_bench_step(r);
  const BenchStepReport report = bench_step(r, [](const std::string&) {});
  ASSERT_EQ(report.rows.size(), 12U);
  for (const StepRow& row : report.rows) {
    ASSERT_TRUE(row.timed()) << row.variant_set() << ": " << row.reason;
    EXPECT_EQ(row.captured, row.preset == "optimized") << row.variant_set();
    EXPECT_EQ(row.measured.peak_total, row.predicted.peak_total) << row.variant_set();
  }
}

// Of rows that were timed as graphs and of rows that were launched op by op.
TEST_F(CudaStepClock, PartsAndGapsAddUpToTheTracedStep) {
  if (const std::string why = why_no_kernel_times(); !why.empty()) GTEST_SKIP() << why;
  BenchStepRequest r;
  r.sizes = {find_model_size("tiny")};
  r.contexts = {128};
  r.precisions = {Precision::bf16};
  r.presets = {"baseline", "optimized"};
  r.modes = {StepMode::forward, StepMode::full};
  r.warmups = 2;
  r.steps = 3;
  r.split = true;
  r.kernels = 5;
  r.device = Device::cuda();
  r.begun = std::chrono::steady_clock::now();
  check_bench_step(r);
  const BenchStepReport report = bench_step(r, [](const std::string&) {});
  ASSERT_EQ(report.rows.size(), 4U);
  for (const StepRow& row : report.rows) {
    ASSERT_TRUE(row.timed()) << row.variant_set() << ": " << row.reason;
    ASSERT_TRUE(row.split && row.split->kernels);
    const KernelSplit& split = *row.split->kernels;
    double parts = 0, kernels = 0, calls = 0;
    bool gemm = false, attention = false, update = false;
    for (const PartTime& p : split.parts) {
      parts += p.ms;
      kernels += p.kernels;
      gemm = gemm || p.what == KernelPart::gemm;
      attention = attention || p.what == KernelPart::attention;
      update = update || p.what == KernelPart::update;
    }
    for (const KernelTotal& k : split.kernels) calls += k.calls;
    EXPECT_GT(split.gaps_ms(), 0) << row.variant_set();
    EXPECT_GE(split.overlap_ms(), -1e-9)
        << row.variant_set();  // a kernel may begin before the one ahead ends
    EXPECT_NEAR(parts + split.gaps_ms() - split.overlap_ms(), split.span_ms, 1e-6 * split.span_ms)
        << row.variant_set();
    EXPECT_NEAR(calls, kernels, 1e-6);
    EXPECT_EQ(kernels, std::floor(kernels)) << "steps differ: " << row.variant_set();
    EXPECT_TRUE(gemm && attention) << row.variant_set();
    EXPECT_EQ(update, row.spec.mode == StepMode::full) << row.variant_set();
    EXPECT_GT(row.split->attributed, 0.99) << row.variant_set();
  }
}

// A graph's kernels are as many as those the host launched, and come with the nodes they belong to.
TEST_F(CudaStepClock, RecordsOfAGraphNameItsNodes) {
  if (const std::string why = why_no_kernel_times(); !why.empty()) GTEST_SKIP() << why;
  StepSpec spec;
  spec.model = config_of(find_model_size("nano"));
  spec.precision = Precision::bf16;
  spec.step.batch = 2;
  spec.step.context = 32;
  spec.step.graph = true;
  KernelTimes times;
  EXPECT_THROW(KernelTimes(), Error);  // one at a time
  RankContext ctx(gpu());
  SyntheticStep step(ctx, spec);
  auto trace = [&] {
    ctx.synchronize();
    times.start();
    step.run();
    ctx.synchronize();
    return times.stop();
  };
  auto in_graph = [](const std::vector<KernelRecord>& records) {
    return std::count_if(records.begin(), records.end(),
                         [](const KernelRecord& r) { return r.graph_node != 0; });
  };
  const std::vector<KernelRecord> eager = trace();
  step.run();  // captured
  const std::vector<KernelRecord> replayed = trace();
  EXPECT_EQ(in_graph(eager), 0);
  EXPECT_GT(in_graph(replayed), 0);
  auto kernels = [](const std::vector<KernelRecord>& records) {
    return std::count_if(records.begin(), records.end(),
                         [](const KernelRecord& r) { return r.name.find("4kiln") != std::string::npos; });
  };
  EXPECT_GT(kernels(replayed), 0);
  EXPECT_EQ(kernels(eager), kernels(replayed));
  for (const KernelRecord& r : replayed) EXPECT_GE(r.end_ns, r.start_ns) << r.name;
}

}  // namespace
}  // namespace kiln
