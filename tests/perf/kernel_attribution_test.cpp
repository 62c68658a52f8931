#include "perf/trace/kernel_attribution.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

using Kind = KernelRecord::Kind;

constexpr uint64_t kZero = 1'000'000'000'000'000'000;  // clocks of GPUs count from 1970

KernelRecord kernel(const char* name, uint64_t start, uint64_t end, uint32_t call, uint32_t stream = 7) {
  return {Kind::kernel, name, kZero + start, kZero + end, 0, call, stream};
}

CallRecord call(uint64_t start, uint64_t end, uint32_t number, const char* name = "cudaLaunchKernelExC") {
  return {name, kZero + start, kZero + end, number};
}

TracedOp op(const char* name, double begin_us, double end_us, StepPhase phase = StepPhase::forward) {
  return {name, "fused", "layers.0", phase, false, false, {}, begin_us, end_us};
}

// Two steps: the host is ahead of the GPU, and a batch is copied during the first.
StepRecords two_steps() {
  StepRecords r;
  r.zero_ns = kZero;
  r.begins_ns = {kZero + 1000, kZero + 20000, kZero + 40000};
  r.calls = {call(2000, 3000, 1),
             call(4000, 5000, 2),
             call(6000, 7000, 3, "cudaMemsetAsync"),
             call(9000, 9500, 4),
             call(10000, 10100, 5, "cudaMemcpyAsync"),
             call(11000, 11100, 6, "cudaEventRecord"),
             call(21000, 22000, 11),
             call(23000, 24000, 12),
             call(26000, 27000, 13, "cudaMemsetAsync"),
             call(29000, 29500, 14)};
  r.kernels = {kernel("linear_k", 50000, 60000, 1),  kernel("linear_k", 61000, 62000, 2),
               kernel("memset", 63000, 63500, 3),    kernel("norm_k", 64000, 66000, 4),
               kernel("memcpy", 50000, 70000, 5, 9), kernel("linear_k", 67000, 77000, 11),
               kernel("linear_k", 78000, 79000, 12), kernel("memset", 80000, 80500, 13),
               kernel("norm_k", 81000, 83000, 14),   kernel("stray", 1, 2, 99)};
  r.kernels[2].kind = r.kernels[7].kind = Kind::fill;
  r.kernels[4].kind = Kind::copy;
  return r;
}

TEST(KernelAttribution, RecordsGoToTheStepThatAskedForThem) {
  const StepRecords r = two_steps();
  EXPECT_EQ(main_stream(r.kernels), 7U);
  const std::vector<StepKernels> steps = by_step(r);
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].kernels.size(), 5U);  // the stray one has no launch
  EXPECT_EQ(steps[1].kernels.size(), 4U);
  EXPECT_EQ(steps[0].end_ns, kZero + 66000);  // the concurrent copy ends later
  EXPECT_EQ(steps[0].calls.size(), 5U);       // launches, copies and fills, not events
  EXPECT_NEAR(steps[0].calls[0].begin_us, 2, 1e-9);
}

TEST(KernelAttribution, ALaunchBelongsToTheOpThatMadeItOrComesNext) {
  const StepRecords r = two_steps();
  std::vector<StepKernels> steps = by_step(r);
  const std::vector<TracedOp> ops = {op("linear", 1.5, 5.5), op("rms_norm", 8.5, 9.9)};
  attribute_launched(steps[0], r, ops, 7);
  const std::vector<int> expected = {0, 0, 1, 1,
                                     -1};  // the fill between two ops had to happen for the second
  EXPECT_EQ(steps[0].ops, expected);
  EXPECT_EQ(attributed_share(steps[0], 7), 1);
  const Trace t = trace_of(steps[0], kZero + 40000, kZero, ops);
  EXPECT_NEAR(t.begin_us, 40, 1e-9);
  EXPECT_NEAR(t.end_us, 66, 1e-9);
  EXPECT_EQ(t.spans[2].lane, TraceLane::copy);
  EXPECT_EQ(t.spans[2].group, KernelGroup::copy);
  EXPECT_EQ(t.spans[3].group, KernelGroup::norm);
  EXPECT_EQ(t.spans[4].op, -1);
  EXPECT_NEAR(t.spans[0].us(), 10, 1e-9);
}

// A graph is one call; its kernels come in the order of the step that was launched.
TEST(KernelAttribution, AReplayedStepIsLaidBesideALaunchedOne) {
  const StepRecords r = two_steps();
  std::vector<StepKernels> steps = by_step(r);
  const std::vector<TracedOp> ops = {op("linear", 1.5, 5.5), op("rms_norm", 8.5, 9.9)};
  attribute_launched(steps[0], r, ops, 7);
  const KernelOrder order = order_of(steps[0], 7);
  EXPECT_EQ(order.names.size(), 4U);

  StepRecords graph;
  graph.zero_ns = kZero;
  graph.begins_ns = {kZero, kZero + 10000};
  graph.calls = {call(100, 200, 1, "cudaGraphLaunch")};
  for (uint64_t i = 0; i < 4; ++i)
    graph.kernels.push_back(kernel(order.names[i].c_str(), 1000 * (i + 1), 1000 * (i + 1) + 500, 1, 3));
  std::vector<StepKernels> replayed = by_step(graph);
  ASSERT_EQ(replayed.size(), 1U);
  attribute_replayed(replayed[0], order, 3);
  const std::vector<int> expected = {0, 0, 1, 1};
  EXPECT_EQ(replayed[0].ops, expected);

  graph.kernels[1].name = "another";  // what is not in the order belongs to no op, the rest stays
  replayed = by_step(graph);
  attribute_replayed(replayed[0], order, 3);
  const std::vector<int> partly = {0, -1, 1, 1};
  EXPECT_EQ(replayed[0].ops, partly);
  EXPECT_NEAR(attributed_share(replayed[0], 3), 0.75, 1e-9);
}

TEST(KernelAttribution, StepsWithoutCallsAreToldByTheirCount) {
  StepRecords r = two_steps();
  EXPECT_TRUE(by_count(r).empty());  // nine on the main stream, with the stray one
  r.kernels.pop_back();
  r.calls.clear();
  const std::vector<StepKernels> steps = by_count(r);
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].kernels.size(), 4U);
  EXPECT_EQ(steps[1].end_ns, kZero + 83000);
}

TEST(KernelAttribution, AlignsTheLongestCommonSequence) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(align(Names{"a", "b", "c"}, Names{"a", "b", "c"}), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(align(Names{"a", "b", "c"}, Names{"a", "c"}), (std::vector<int>{0, 2}));
  EXPECT_EQ(align(Names{"a", "c"}, Names{"a", "b", "c"}), (std::vector<int>{0, -1, 1}));
  EXPECT_EQ(align(Names{"x", "a", "b", "a", "y"}, Names{"z", "b", "a", "w"}),
            (std::vector<int>{-1, 2, 3, -1}));
  EXPECT_EQ(align(Names{}, Names{"a"}), std::vector<int>{-1});
  EXPECT_TRUE(align(Names{"a"}, Names{}).empty());
}

TEST(KernelAttribution, GroupsAreTheOpsAndMatmulsTheLibrarys) {
  const TracedOp loss = op("linear_cross_entropy", 0, 1), softmax = op("masked_softmax", 0, 1),
                 cast = op("cast", 0, 1), product = op("batched_matmul", 0, 1),
                 attention = op("attention", 0, 1);
  EXPECT_EQ(group_of(kernel("nvjet_tst_128", 0, 1, 1), &loss), KernelGroup::matmul);
  EXPECT_EQ(group_of(kernel("_ZN4kiln11held_row_LogitsChunk", 0, 1, 1), &loss), KernelGroup::reduction);
  EXPECT_EQ(group_of(kernel("_ZN4kiln17write_sums_kernel", 0, 1, 1), &product), KernelGroup::matmul);
  EXPECT_EQ(group_of(kernel("_ZN4kiln1x20MaskedSoftmaxProblem", 0, 1, 1), &softmax), KernelGroup::softmax);
  EXPECT_EQ(group_of(kernel("_ZN4kiln20flash_forward", 0, 1, 1), &attention), KernelGroup::attention);
  EXPECT_EQ(group_of(kernel("_ZN4kiln1x", 0, 1, 1), &cast), KernelGroup::copy);
  EXPECT_EQ(group_of(kernel("gemm_splitK", 0, 1, 1), nullptr), KernelGroup::matmul);
}

}  // namespace
}  // namespace kiln
