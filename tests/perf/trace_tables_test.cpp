// What is said about a traced step, from steps made by hand.
#include "perf/trace/trace_tables.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/op_list.h"

namespace kiln {
namespace {

constexpr OpRates kRates{{1e9, 1e6}, 0.5};  // a flop takes a nanosecond, a byte a microsecond

// Ops one after another on the CPU, each with a gap of 100 us before it.
class CpuStep {
 public:
  CpuStep& op(const char* name, const char* scope, StepPhase phase, double us, Cost cost = {1e6, 10},
              bool recomputed = false) {
    const double begin = trace_.end_us + 100;
    const bool backward = phase == StepPhase::backward && !recomputed;
    trace_.ops.push_back({name, "plain", scope, phase, backward, recomputed, cost, begin, begin + us});
    trace_.spans.push_back({TraceLane::cpu, group_of_op(name),
                            std::string(name) + (backward ? " backward" : ""),
                            static_cast<int>(trace_.ops.size()) - 1, begin, begin + us});
    trace_.end_us = begin + us;
    return *this;
  }
  Trace finish(double tail_us = 50) {
    trace_.end_us += tail_us;
    return trace_;
  }

 private:
  Trace trace_;
};

Trace two_layers() {
  CpuStep s;
  s.op("embedding", "embed_tokens", StepPhase::forward, 200);
  for (const char* layer : {"layers.0", "layers.1"}) {
    const std::string attention = std::string(layer) + ".attention", mlp = std::string(layer) + ".mlp";
    s.op("linear", attention.c_str(), StepPhase::forward, 1000);
    s.op("batched_matmul", (attention + ".scores").c_str(), StepPhase::forward, 300, {8e6, 100});
    s.op("masked_softmax", (attention + ".softmax").c_str(), StepPhase::forward, 900, {1e6, 400});
    s.op("batched_matmul", (attention + ".final_matmul").c_str(), StepPhase::forward, 200, {8e6, 100});
    s.op("swiglu", mlp.c_str(), StepPhase::forward, 400);
  }
  s.op("linear_cross_entropy", "loss", StepPhase::forward, 800);
  s.op("linear_cross_entropy", "loss", StepPhase::backward, 100);
  s.op("linear", "layers.1.attention", StepPhase::forward, 0);  // nothing: an op may be empty
  s.op("linear", "layers.1.attention", StepPhase::backward, 2500);
  s.op("adamw", "update", StepPhase::update, 700);
  return s.finish();
}

const RangeRow& row(const std::vector<RangeRow>& rows, const char* phase, const char* range) {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const RangeRow& r) { return r.phase == phase && r.range == range; });
  EXPECT_NE(found, rows.end()) << phase << " " << range;
  return found != rows.end() ? *found : rows.front();
}

TEST(TraceTables, RangesHoldTheirOpsAndAddUpToTheStep) {
  const Trace t = two_layers();
  const std::vector<RangeRow> rows = ranges_of(t, kRates, {});
  EXPECT_EQ(rows.front().phase, "step");
  EXPECT_NEAR(rows.front().wall_ms(), t.ms(), 1e-9);
  EXPECT_EQ(rows.front().ops, 16);
  double phases = 0;
  for (const char* phase : {"forward", "backward", "optimizer"}) phases += row(rows, phase, "").wall_ms();
  EXPECT_NEAR(phases + 0.05, t.ms(), 1e-9);  // and what the step does after its last op
  const RangeRow& attention = row(rows, "forward", "layers.*.attention");
  EXPECT_EQ(attention.ops, 9);
  EXPECT_NEAR(attention.ms, 2 * 2.4, 1e-9);
  EXPECT_NEAR(attention.idle_ms, 0.9, 1e-9);
  EXPECT_NEAR(attention.dispatch_ms, 0.9, 1e-9);
  EXPECT_NEAR(row(rows, "forward", "layers.*").ms, 2 * 2.8, 1e-9);
  EXPECT_NEAR(row(rows, "forward", "layers.*.attention.softmax").ms, 1.8, 1e-9);
  EXPECT_NEAR(row(rows, "backward", "layers.*.attention").ms, 2.5, 1e-9);
  // Parents are before what they hold.
  std::vector<std::string> order;
  for (const RangeRow& r : rows) order.push_back(r.phase + "/" + r.range);
  const std::vector<std::string> expected = {"step/",
                                             "forward/",
                                             "forward/embed_tokens",
                                             "forward/layers.*",
                                             "forward/layers.*.attention",
                                             "forward/layers.*.attention.scores",
                                             "forward/layers.*.attention.softmax",
                                             "forward/layers.*.attention.final_matmul",
                                             "forward/layers.*.mlp",
                                             "forward/loss",
                                             "backward/",
                                             "backward/loss",
                                             "backward/layers.*",
                                             "backward/layers.*.attention",
                                             "optimizer/"};
  EXPECT_EQ(order, expected);
}

TEST(TraceTables, FloorsArePredictedNoFasterThanTheSmallestOp) {
  const Trace t = CpuStep()
                      .op("linear", "a", StepPhase::forward, 10, {4e6, 1})
                      .op("add", "a", StepPhase::forward, 10, {1, 100})
                      .finish();
  const RangeRow all = ranges_of(t, kRates, {}).front();
  EXPECT_NEAR(all.floor_ms, 4 + 0.1, 1e-9);      // one bound by operations, one by bytes
  EXPECT_NEAR(all.predicted_ms, 4 + 0.5, 1e-9);  // the second is smaller than the smallest
}

TEST(TraceTables, ModelOperationsLeaveOutWhatRunsAgain) {
  const ModelWork model{100, 200, 1.5, 1000};
  const Trace t = CpuStep()
                      .op("linear", "layers.0.mlp", StepPhase::forward, 1, {10, 1})
                      .op("attention", "layers.0.attention", StepPhase::forward, 1, {7, 1})
                      .op("linear_cross_entropy", "loss", StepPhase::forward, 1, {3000, 1})
                      .op("linear", "layers.0.mlp", StepPhase::backward, 1, {10, 1}, true)
                      .op("attention", "layers.0.attention", StepPhase::backward, 1, {17, 1})
                      .op("linear_cross_entropy", "loss", StepPhase::backward, 1, {2, 1})
                      .op("batched_matmul", "x.scores", StepPhase::forward, 1, {5, 1})
                      .finish();
  const RangeRow all = ranges_of(t, kRates, model).front();
  EXPECT_DOUBLE_EQ(all.model_causal, 10 + 100 + 3000 + 200 + 50);  // the head's matmuls all ran in forward
  EXPECT_DOUBLE_EQ(all.model_dense, 10 + 200 + 3000 + 400 + 100);
  EXPECT_DOUBLE_EQ(all.cost.flops, 10 + 7 + 3000 + 10 + 17 + 2 + 5);
  EXPECT_DOUBLE_EQ(all.dense_flops, 10 + 7 * 1.5 + 3000 + 10 + 17 * 1.5 + 2 + 5);
}

TEST(TraceTables, LayersAreToldApart) {
  const std::vector<RangeRow> rows = layers_of(two_layers(), kRates, {});
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].range, "layers.0");
  EXPECT_EQ(rows[0].ops, 5);
  EXPECT_EQ(rows[1].ops, 6);
  EXPECT_EQ(rows[2].phase, "backward");
}

TEST(TraceTables, KernelsAreTheSlowestFirstAndASpanThatChangesChangesThem) {
  Trace t = two_layers();
  std::vector<KernelRow> rows = kernels_of(t, kForward, kRates);
  EXPECT_EQ(rows[0].name, "linear");
  EXPECT_EQ(rows[0].calls, 3);
  EXPECT_NEAR(rows[0].ms, 2, 1e-9);
  EXPECT_EQ(rows[1].name, "masked_softmax");
  double share = 0;
  for (const KernelRow& r : rows) share += r.share;
  EXPECT_NEAR(share, 1, 1e-12);
  EXPECT_EQ(kernels_of(t, kForwardBackward, kRates)[0].name, "linear backward");
  t.spans[3].end_us += 500;  // the first softmax
  rows = kernels_of(t, kForward, kRates);
  EXPECT_EQ(rows[0].name, "masked_softmax");
  EXPECT_NEAR(rows[0].ms, 2.3, 1e-9);
}

TEST(TraceTables, SharesOfMatmuls) {
  Trace t = two_layers();
  const MatmulShare forward = matmul_share(t, kForward, kRates);
  EXPECT_NEAR(forward.total_ms, 0.2 + 2 * 2.8 + 0.8, 1e-9);
  EXPECT_NEAR(forward.matmul_ms, 2 * 1.5 + 0.8, 1e-9);
  EXPECT_EQ(forward.attention_ms, 0);
  EXPECT_NEAR(forward.at_the_floor, (2 * 17 + 1) / (2 * 19 + 2.0), 1e-9);  // 1 ms each, two matmuls of 8
  const MatmulShare step = matmul_share(t, kWholeStep, kRates);
  EXPECT_NEAR(step.total_ms, 6.6 + 0.1 + 2.5 + 0.7, 1e-9);
  t.spans[3].group = KernelGroup::attention;
  EXPECT_NEAR(matmul_share(t, kForward, kRates).with_attention(), (3.8 + 0.9) / 6.6, 1e-9);
  EXPECT_EQ(groups_of(t, kUpdate).front().group, KernelGroup::optimizer);
  EXPECT_TRUE(groups_of(Trace{}, kForward).empty());
  EXPECT_EQ(matmul_share(Trace{}, kForward, kRates).matmul(), 0);
}

TEST(TraceTables, AttentionsPartsAreOfForwardAlone) {
  Trace t = two_layers();
  const auto parts = attention_parts(t, kRates);
  ASSERT_TRUE(parts);
  EXPECT_EQ((*parts)[1].name, "softmax");
  EXPECT_EQ((*parts)[1].calls, 2);
  EXPECT_NEAR((*parts)[1].ms, 1.8, 1e-9);
  EXPECT_DOUBLE_EQ((*parts)[0].cost.flops, 16e6);
  EXPECT_NEAR((*parts)[0].floor_ms, 16, 1e-9);
  EXPECT_NEAR((*parts)[0].predicted_ms, 16, 1e-9);
  EXPECT_NEAR((*attention_parts(t, {kRates.best, 100}))[0].predicted_ms, 200, 1e-9)
      << "no op is faster than that";
  for (TracedOp& op : t.ops) op.recomputed = op.recomputed || op.op == "masked_softmax";
  EXPECT_FALSE(attention_parts(t, kRates));  // one of the three is missing
}

// On a GPU the host is ahead, and kernels follow each other with gaps of their own.
Trace gpu_step(double gap_us, double host_us) {
  Trace t;
  for (int i = 0; i < 10; ++i) {
    t.ops.push_back({"add",
                     "fused",
                     "layers.0",
                     StepPhase::forward,
                     false,
                     false,
                     {1, 1},
                     i * host_us,
                     (i + 1) * host_us});
    const double begin = 1000 + i * (90 + gap_us) + gap_us;
    t.spans.push_back({TraceLane::gpu, KernelGroup::elementwise, "k", i, begin, begin + 90});
  }
  t.spans.push_back({TraceLane::copy, KernelGroup::copy, "memcpy", -1, 1000, 1500});  // of the next batch
  std::sort(t.spans.begin(), t.spans.end(), [](const TraceSpan& a, const TraceSpan& b) {
    return std::pair(a.begin_us, a.end_us) < std::pair(b.begin_us, b.end_us);
  });
  t.begin_us = 1000;
  t.end_us = 1000 + 10 * (90 + gap_us);
  return t;
}

TEST(TraceTables, IsLaunchBoundWhereTheHostSetsThePace) {
  Dispatch d = dispatch_of(gpu_step(1, 20));
  EXPECT_EQ(d.launches, 10);
  EXPECT_NEAR(d.busy_ms, 0.9, 1e-9);
  EXPECT_NEAR(d.idle_ms, 0.01, 1e-9);
  EXPECT_NEAR(d.mean_gap_us, 1, 1e-9);
  EXPECT_NEAR(d.plain.host_ms, 0.2, 1e-9);
  EXPECT_EQ(d.bound, Dispatch::Bound::busy);
  EXPECT_EQ(dispatch_of(gpu_step(110, 195)).bound, Dispatch::Bound::launch_bound);
  EXPECT_EQ(dispatch_of(gpu_step(110, 20)).bound, Dispatch::Bound::waiting);
  const Trace slowed = gpu_step(110, 20);  // by the tracer: 0.9 ms of kernels in 2 ms
  EXPECT_EQ(dispatch_of(slowed, PlainStep{2, 1.99}).bound, Dispatch::Bound::launch_bound);  // as measured
  EXPECT_EQ(dispatch_of(slowed, PlainStep{1.2, 1.19}).bound, Dispatch::Bound::launch_bound);
  EXPECT_EQ(dispatch_of(slowed, PlainStep{1.2, 0.5}).bound, Dispatch::Bound::waiting);
  EXPECT_EQ(dispatch_of(slowed, PlainStep{0.95, 0.94}).bound, Dispatch::Bound::busy);
  EXPECT_NEAR(dispatch_of(slowed, PlainStep{1.2, 0.6}).idle_share(), 0.25, 1e-9);
  EXPECT_NEAR(dispatch_of(slowed, PlainStep{1.2, 0.6}).host_share(), 0.5, 1e-9);
}

TEST(TraceTables, AReplayedStepIsDispatchedByItsGraphs) {
  Trace t = gpu_step(1, 20);
  t.replayed = true;
  t.calls = {{"cudaGraphLaunch", 0, 30}, {"cudaGraphLaunch", 40, 50}};
  EXPECT_NEAR(dispatch_of(t).plain.host_ms, 0.04, 1e-9);
  EXPECT_EQ(ranges_of(t, kRates, {}).front().dispatch_ms, 0);
}

TEST(TraceTables, TheMedianStepIsOneThatWas) {
  auto lasting = [](double us) {
    Trace t;
    t.end_us = us;
    return t;
  };
  EXPECT_EQ(median_step({}), -1);
  EXPECT_EQ(median_step({lasting(3), lasting(1), lasting(2)}), 2);
  EXPECT_EQ(median_step({lasting(3), lasting(1), lasting(2), lasting(9)}), 2);
}

TEST(TraceTables, ScopesAndPaths) {
  EXPECT_EQ(starred("layers.12.attention.scores"), "layers.*.attention.scores");
  EXPECT_EQ(starred(""), "");
  const std::vector<std::string> path = {"backward", "layers.3", "attention"};
  EXPECT_EQ(range_path(StepPhase::backward, "layers.3.attention"), path);
  EXPECT_EQ(range_path(StepPhase::update, "update"), std::vector<std::string>{"optimizer"});
  EXPECT_EQ(range_path(StepPhase::forward, ""), std::vector<std::string>{"forward"});
}

// An op that was renamed must not fall out of its group unseen.
TEST(TraceTables, NamedOpsExist) {
  const std::vector<OpListing> ops = list_ops(Device::cpu());
  for (const char* name : {"linear",
                           "batched_matmul",
                           "linear_cross_entropy",
                           "attention",
                           "masked_softmax",
                           "softmax",
                           "rms_norm",
                           "add_rms_norm",
                           "layer_norm",
                           "embedding",
                           "cross_entropy",
                           "row_mean",
                           "weighted_sum",
                           "square_sum",
                           "finish_step_scalars",
                           "loss_gradient",
                           "accumulate_loss",
                           "cast",
                           "adamw",
                           "sgd"}) {
    EXPECT_NO_THROW(find_op(ops, name)) << name;
    EXPECT_NE(group_of_op(name), KernelGroup::elementwise) << name;
  }
}

}  // namespace
}  // namespace kiln
