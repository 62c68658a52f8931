#include "studies/step/kernel_split.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace kiln {
namespace {

TimedOp op(const char* name, const char* variant, Pass pass, Cost cost) {
  return {name, variant, pass, false, cost, 0};
}

TraceSpan kernel(const char* name, int op, double begin_us, double end_us) {
  return {TraceLane::gpu, KernelGroup::elementwise, name, op, begin_us, end_us};
}
TraceSpan copy(int op, double begin_us, double end_us) {
  return {TraceLane::copy, KernelGroup::copy, "memcpy", op, begin_us, end_us};
}

Trace traced(const std::vector<std::string>& ops, std::vector<TraceSpan> spans, double begin_us,
             double end_us) {
  Trace t;
  for (const std::string& name : ops) t.ops.emplace_back().op = name;
  t.spans = std::move(spans);
  t.begin_us = begin_us;
  t.end_us = end_us;
  return t;
}

constexpr const char* kOurs = "_ZN4kiln4some_kernel";

TEST(StepSplit, AKernelIsOfItsOpsPart) {
  struct Named {
    const char* op;
    const char* kernel;
    KernelPart part;
  };
  for (const Named& n :
       {Named{"linear", "nvjet", KernelPart::gemm}, Named{"linear", kOurs, KernelPart::gemm},
        Named{"batched_matmul", kOurs, KernelPart::gemm},
        Named{"linear_cross_entropy", "nvjet", KernelPart::gemm},
        Named{"linear_cross_entropy", kOurs, KernelPart::loss},
        Named{"cross_entropy", kOurs, KernelPart::loss}, Named{"attention", kOurs, KernelPart::attention},
        Named{"masked_softmax", kOurs, KernelPart::attention}, Named{"softmax", kOurs, KernelPart::pointwise},
        Named{"rope", kOurs, KernelPart::pointwise}, Named{"adamw", kOurs, KernelPart::update},
        Named{"sgd", kOurs, KernelPart::update}, Named{"square_sum", kOurs, KernelPart::scalars},
        Named{"finish_step_scalars", kOurs, KernelPart::scalars}}) {
    TracedOp o;
    o.op = n.op;
    EXPECT_EQ(name_of(part_of(kernel(n.kernel, 0, 0, 1), &o)), name_of(n.part)) << n.op << " " << n.kernel;
    EXPECT_EQ(part_of(copy(0, 0, 1), &o), KernelPart::copies);
  }
  EXPECT_EQ(part_of(kernel("nvjet", -1, 0, 1), nullptr), KernelPart::unknown);
  EXPECT_EQ(part_of(copy(-1, 0, 1), nullptr), KernelPart::copies);
}

// Two steps of 10 ms; a copy of the next batch runs on behind the end of each.
TEST(StepSplit, PartsOverlapAndGapsAddUpToTheStep) {
  std::vector<Trace> steps;
  for (double t : {100'000.0, 110'000.0})
    steps.push_back(traced({"linear", "rms_norm"},
                           {kernel("nvjet_a", 0, t + 1000, t + 6000),
                            kernel(kOurs, 1, t + 5000, t + 8000),  // a millisecond overlapping the matmul
                            copy(-1, t + 9500, t + 10000)},
                           t, t + 10'000));
  const KernelSplit split = split_of(steps);
  EXPECT_EQ(split.steps, 2);
  EXPECT_DOUBLE_EQ(split.span_ms, 10);
  EXPECT_DOUBLE_EQ(split.sum_ms, 8.5);
  EXPECT_DOUBLE_EQ(split.busy_ms, 7.5);
  EXPECT_DOUBLE_EQ(split.gaps_ms(), 2.5);
  EXPECT_DOUBLE_EQ(split.overlap_ms(), 1);
  ASSERT_EQ(split.parts.size(), 3U);
  EXPECT_EQ(split.parts[0].what, KernelPart::gemm);
  EXPECT_DOUBLE_EQ(split.parts[0].ms, 5);
  EXPECT_EQ(split.parts[0].kernels, 1);
  EXPECT_EQ(split.parts[1].what, KernelPart::pointwise);
  EXPECT_EQ(split.parts[2].what, KernelPart::copies);
  double parts = 0;
  for (const PartTime& p : split.parts) parts += p.ms;
  EXPECT_NEAR(parts - split.overlap_ms() + split.gaps_ms(), split.span_ms, 1e-9);
  ASSERT_EQ(split.kernels.size(), 3U);
  EXPECT_EQ(split.kernels[0].name, "nvjet_a");
  EXPECT_EQ(split.kernels[1].name, kOurs);
  EXPECT_EQ(split.kernels[1].calls, 1);
  EXPECT_DOUBLE_EQ(split.kernels[1].ms, 3);
  EXPECT_THROW(split_of({}), Error);
}

// What runs outside of the step does not make it busy, and what runs inside of something else counts once.
TEST(StepSplit, BusyIsTheUnionInsideOfTheStep) {
  const KernelSplit split = split_of(
      {traced({"linear"},
              {copy(-1, 5'000, 12'000), kernel("a", 0, 11'000, 20'000), kernel("b", 0, 15'000, 40'000),
               kernel("c", 0, 18'000, 25'000), kernel("d", 0, 40'000, 50'000), copy(-1, 49'000, 99'000)},
              10'000, 60'000)});
  EXPECT_DOUBLE_EQ(split.busy_ms, 50);
  EXPECT_DOUBLE_EQ(split.gaps_ms(), 0);
}

// The same kernel for two ops is two rows.
TEST(StepSplit, OneNameMayServeTwoParts) {
  const KernelSplit split = split_of({traced(
      {"softmax", "masked_softmax"}, {kernel(kOurs, 0, 0, 1000), kernel(kOurs, 1, 1000, 4000)}, 0, 4000)});
  ASSERT_EQ(split.kernels.size(), 2U);
  EXPECT_EQ(split.kernels[0].part, KernelPart::attention);
  EXPECT_DOUBLE_EQ(split.kernels[0].ms, 3);
  EXPECT_EQ(split.kernels[1].part, KernelPart::pointwise);
}

TEST(StepSplit, FloorsCountWhereTheKernelsAre) {
  const Rates best{1e9, 1e6};  // a flop takes a nanosecond, a byte a microsecond
  const KernelSplit split = split_of({traced({{"linear"}}, {kernel("nvjet", 0, 0, 12000)}, 0, 12000)});
  const std::vector<PartTime> parts = with_rooflines(
      split,
      {op("linear", "lt", Pass::forward, {4e6, 10}),
       op("linear_cross_entropy", "fused", Pass::forward, {2e6, 0}),
       op("linear_cross_entropy", "fused", Pass::backward, {0, 3000}),
       op("linear_cross_entropy", "composed", Pass::backward, {1e6, 0}),
       op("cross_entropy", "fused", Pass::forward, {0, 1000}), op("rope", "fused", Pass::forward, {0, 500}),
       op("attention", "flash", Pass::forward, {8e6, 0}), op("adamw", "fused", Pass::forward, {0, 100})},
      best);
  ASSERT_EQ(parts.size(), 5U);
  EXPECT_EQ(parts[0].what, KernelPart::gemm);
  EXPECT_DOUBLE_EQ(parts[0].ms, 12);
  EXPECT_DOUBLE_EQ(parts[0].roofline_ms, 4 + 2 + 1);
  EXPECT_DOUBLE_EQ(parts[0].cost.flops, 7e6);
  EXPECT_EQ(parts[1].what, KernelPart::loss);
  EXPECT_DOUBLE_EQ(parts[1].roofline_ms, 3 + 1);
  EXPECT_EQ(parts[1].kernels, 0);  // ops without kernels are shown too
  EXPECT_EQ(parts[2].what, KernelPart::attention);
  EXPECT_DOUBLE_EQ(parts[2].roofline_ms, 8);
  EXPECT_EQ(parts[3].what, KernelPart::pointwise);
  EXPECT_EQ(parts[4].what, KernelPart::update);
}

}  // namespace
}  // namespace kiln
