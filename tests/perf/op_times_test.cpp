#include "perf/timing/op_times.h"

#include <gtest/gtest.h>

#include "autograd/tape.h"
#include "ops/op_list.h"
#include "ops/swiglu/swiglu.h"
#include "perf/timing/device_ceilings.h"
#include "studies/op/pass_clock.h"

namespace kiln {
namespace {

TimedOp op(const char* name, double ms, Cost cost = {1, 1}) {
  return {name, "naive", Pass::forward, false, cost, ms};
}

TEST(OpTimes, ClassesAndTotalsAddUp) {
  const Rates best{1e9, 1e6};  // a flop takes a nanosecond, a byte a microsecond
  const std::vector<TimedOp> ops = {op("linear", 2, {4e6, 10}), op("linear", 3, {1e3, 5000}),
                                    op("swiglu", 1, {1, 2000}), op("adamw", 0.5)};
  const std::vector<ClassTime> classes = by_class(ops, best);
  ASSERT_EQ(classes.size(), 3U);
  EXPECT_EQ(classes[0].what, OpClass::gemm);
  EXPECT_EQ(classes[0].calls, 2);
  EXPECT_DOUBLE_EQ(classes[0].ms, 5);
  EXPECT_DOUBLE_EQ(classes[0].floor_ms, 4 + 5);  // one bound by operations, one by bytes
  EXPECT_DOUBLE_EQ(classes[0].cost.bytes, 5010);
  const std::vector<OpTotal> totals = by_op(ops, best);
  ASSERT_EQ(totals.size(), 3U);
  EXPECT_EQ(totals[0].op.op, "linear");
  EXPECT_EQ(totals[0].calls, 2);
  EXPECT_DOUBLE_EQ(totals[0].op.ms, 5);
  EXPECT_DOUBLE_EQ(totals[1].floor_ms, 2);
}

TEST(OpTimes, MediansAreOfEachOp) {
  const std::vector<std::vector<TimedOp>> steps = {
      {op("add", 1), op("linear", 9)}, {op("add", 8), op("linear", 5)}, {op("add", 2), op("linear", 0.1)}};
  const std::vector<TimedOp> medians = median_ops(steps);
  EXPECT_DOUBLE_EQ(medians[0].ms, 2);
  EXPECT_DOUBLE_EQ(medians[1].ms, 5);
  EXPECT_THROW(median_ops({{op("add", 1)}, {op("swiglu", 1)}}), Error);
  EXPECT_THROW(median_ops({{op("add", 1)}, {}}), Error);
}

// An op that was renamed, or a new one, must not fall out of its class unseen.
TEST(OpTimes, NamedOpsExist) {
  const std::vector<OpListing> ops = list_ops(Device::cpu());
  for (const char* name : {"linear", "batched_matmul", "attention", "masked_softmax", "adamw", "sgd",
                           "square_sum", "finish_step_scalars", "accumulate_loss", "linear_cross_entropy"}) {
    EXPECT_NO_THROW(find_op(ops, name));
    EXPECT_NE(class_of(name), OpClass::pointwise) << name;
  }
  for (const char* name :
       {"rms_norm", "add_rms_norm", "rope", "swiglu", "add", "embedding", "cast", "cross_entropy"}) {
    EXPECT_NO_THROW(find_op(ops, name));
    EXPECT_EQ(class_of(name), OpClass::pointwise) << name;
  }
}

TEST(OpTimes, WatchesWhatRunsWhileItLives) {
  RankOptions options;
  options.threads = 1;
  RankContext ctx(options);
  const GradModeGuard off(ctx, GradMode::off);
  const Tensor x = ctx.zeros({300, 500}, DType::f32);
  {
    OpTimes times(ctx);
    (void)swiglu(ctx, x, x);
    (void)swiglu(ctx, x, x);
    const std::vector<TimedOp> ops = times.take();
    ASSERT_EQ(ops.size(), 2U);
    EXPECT_EQ(ops[0].op, "swiglu");
    EXPECT_GT(ops[0].ms, 0);
    EXPECT_EQ(ops[0].cost.bytes, 3.0 * 300 * 500 * 4);
    times.clear();
    EXPECT_TRUE(times.take().empty());
  }
  EXPECT_TRUE(ctx.observers().empty());
}

TEST(QueuedTiming, TimesTheCallsItIsHanded) {
  RankOptions options;
  options.threads = 1;
  RankContext ctx(options);
  int prepared = 0, called = 0;
  const Timing t = time_queued(ctx,
                               [&](const TimedCall& timed) {
                                 ++prepared;
                                 timed([&] { ++called; }, 1);
                                 timed([&] { ++called; }, 1);
                               },
                               {.warmups = 2, .min_samples = 7, .min_seconds = 0});
  EXPECT_EQ(t.warmups, 2);
  EXPECT_GE(t.samples.size(), 7U);
  EXPECT_EQ(called, 2 * prepared);
  EXPECT_EQ(static_cast<std::size_t>(called), t.samples.size() + 4);  // two warm-ups of two calls
  EXPECT_THROW(time_queued(ctx, [](const TimedCall&) {}), Error);
}

TEST(QueuedTiming, MarksGrowWithTime) {
  RankContext ctx;
  StreamMarks marks(ctx);
  EXPECT_EQ(marks.mark(), 0U);
  const Tensor x = ctx.zeros({1 << 20}, DType::f32);
  EXPECT_EQ(marks.mark(), 1U);
  EXPECT_EQ(marks.mark(), 2U);
  EXPECT_GT(marks.ms_between(0, 1), 0);
  EXPECT_NEAR(marks.ms_between(0, 2), marks.ms_between(0, 1) + marks.ms_between(1, 2), 1e-9);
  marks.clear();
  EXPECT_EQ(marks.mark(), 0U);
}

TEST(DeviceCeilings, AreMeasuredThroughTheOpsOfARun) {
  RankOptions options;
  options.threads = 1;
  RankContext ctx(options);
  const DeviceCeilings c = measure_device_ceilings(
      ctx, {.dtypes = {DType::bf16, DType::f32}, .copy = {1 << 16}, .product = 64, .seconds_each = 1e-3});
  EXPECT_GT(c.copy, 0);
  ASSERT_EQ(c.products.size(), 2U);
  EXPECT_EQ(c.products[0].size, 64);
  EXPECT_EQ(c.products[1].size, 32);
  EXPECT_EQ(c.products[1].variant, "packed");
  EXPECT_GT(c.flops_for(DType::bf16), 0);
  EXPECT_EQ(c.flops_for(DType::f16), 0);
  EXPECT_TRUE(ctx.observers().empty());
}

TEST(BenchClock, SetsRotateWhereOneWouldStayInTheCache) {
  EXPECT_EQ(sets_to_rotate(1e9, 50e6), 1);
  EXPECT_EQ(sets_to_rotate(100e6, 50e6), 2);
  EXPECT_EQ(sets_to_rotate(10e6, 50e6), 20);
  EXPECT_EQ(sets_to_rotate(1, 50e6), 32);
  EXPECT_EQ(sets_to_rotate(0, 50e6), 1);
  EXPECT_EQ(sets_to_rotate(100e6, 0), 1);
}

}  // namespace
}  // namespace kiln
