// Traces of real steps: what they record, that meta predicts them event by event, and the sweeps.
#include "studies/memory/memory_study.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

StepSpec tiny_step(StepMode mode = StepMode::full) {
  StepSpec s;
  s.model = {.vocab = 97, .d_model = 32, .d_ff = 96, .layers = 3, .heads = 2, .kv_heads = 2};
  s.step.batch = 2;
  s.step.context = 20;
  s.mode = mode;
  return s;
}

// Also where KILN_ALLOC=raw: there the CPU has guard bytes between its segments and meta has none.
RankOptions pooled() {
  RankOptions o;
  o.alloc_mode = AllocMode::caching;
  return o;
}

TEST(MemoryTrace, MetaPredictsEveryEvent) {
  for (const Recompute& kind : {Recompute::none, Recompute::every(2), Recompute::nested}) {
    StepSpec spec = tiny_step();
    spec.model.recompute = kind;
    const MemoryTracedStep run = trace_step(spec, pooled()),
                           planned = trace_step(spec, planned_for(pooled()));
    EXPECT_EQ(run.stats.peak_total, planned.stats.peak_total);
    ASSERT_EQ(run.record.events.size(), planned.record.events.size());
    for (std::size_t i = 0; i < run.record.events.size(); ++i) {
      const MemoryEvent &a = run.record.events[i], &b = planned.record.events[i];
      ASSERT_EQ(a.kind, b.kind) << i;
      ASSERT_EQ(a.address, b.address) << i;
      ASSERT_EQ(a.bytes, b.bytes) << i;
      ASSERT_EQ(a.phase, b.phase) << i;
      ASSERT_STREQ(a.op, b.op) << i;
      ASSERT_EQ(a.line, b.line) << i;
      ASSERT_EQ(run.record.scope_of(a), planned.record.scope_of(b)) << i;
    }
  }
}

TEST(MemoryTrace, AnalysisAndAllocatorAgree) {
  for (const StepMode mode : {StepMode::forward, StepMode::forward_backward, StepMode::full}) {
    const MemoryTracedStep run = trace_step(tiny_step(mode), {});
    const MemoryAnalysis a = analyse(run.record);
    EXPECT_EQ(a.peak.bytes, run.stats.peak_total);
    EXPECT_EQ(a.own_peak, run.stats.peak);
    EXPECT_EQ(a.peak_reserved, run.stats.peak_reserved);
  }
}

// For a GPU the rank itself holds a workspace of the matrix library, taken before a trace can begin.
TEST(MemoryTrace, KnowsTheWorkspaceThatTheRankHolds) {
  RankOptions rank;
  rank.device = Device::meta(DeviceType::cuda);
  const MemoryTracedStep run = trace_step(tiny_step(StepMode::full), rank);
  const MemoryAnalysis a = analyse(run.record);
  EXPECT_GT(run.stats.peak[Tag::workspace], std::size_t{1} << 20);
  EXPECT_EQ(a.peak.bytes, run.stats.peak_total);
  EXPECT_EQ(a.own_peak, run.stats.peak);
  EXPECT_EQ(a.peak_reserved, run.stats.peak_reserved);
}

TEST(MemoryTrace, KnowsPhaseOpLayerAndLine) {
  StepSpec spec = tiny_step();
  spec.model.recompute = Recompute::block;
  const MemoryRecord r = trace_step(spec, {}).record;
  bool seen[kPhaseCount] = {};
  bool attention = false, gradient = false;
  for (const MemoryEvent& e : r.events) {
    if (e.kind != AllocEvent::Kind::alloc) continue;
    seen[static_cast<int>(e.phase)] = true;
    EXPECT_GT(e.line, 0u);
    EXPECT_TRUE(short_file(e.file).starts_with("src/")) << e.file;
    const std::string_view op = e.op, scope = r.scope_of(e), file = short_file(e.file);
    attention = attention || (op == "attention" && scope == "layers.1.attention" &&
                              e.phase == Phase::recompute && file.starts_with("src/ops/attention/"));
    gradient = gradient || (op == "swiglu" && e.phase == Phase::backward && file == "src/autograd/tape.cpp");
  }
  EXPECT_TRUE(attention);
  EXPECT_TRUE(gradient);
  EXPECT_TRUE(seen[static_cast<int>(Phase::setup)]);
  EXPECT_TRUE(seen[static_cast<int>(Phase::forward)]);
  EXPECT_TRUE(seen[static_cast<int>(Phase::recompute)]);
  EXPECT_TRUE(seen[static_cast<int>(Phase::backward)]);
  ASSERT_EQ(r.marks.size(), 2u);
  EXPECT_EQ(r.marks[1].name, "step 2");
}

TEST(MemoryTrace, ARingKeepsTheLastEventsAndWhatWasInUseBefore) {
  const MemoryTracedStep all = trace_step(tiny_step(), planned_for({}));
  const MemoryTracedStep last = trace_step(tiny_step(), planned_for({}), {.most_events = 50});
  ASSERT_EQ(last.record.events.size(), 50u);
  EXPECT_EQ(last.record.dropped, static_cast<int64_t>(all.record.events.size()) - 50);
  const MemoryAnalysis a = analyse(all.record), b = analyse(last.record);
  EXPECT_EQ(std::vector<std::size_t>(a.in_use.end() - 50, a.in_use.end()), b.in_use);
}

TEST(MemoryTrace, NothingIsRecordedAfterwards) {
  RankContext ctx(planned_for(pooled()));
  MemoryRecord r;
  {
    MemoryTrace trace(ctx);
    (void)ctx.empty({3}, DType::f32);
    r = trace.take();
  }
  (void)ctx.empty({4}, DType::f32);
  EXPECT_EQ(r.events.size(), 3u);  // a segment, the tensor, its end
  EXPECT_EQ(r.events[1].requested, 12u);
}

TEST(MemoryFloor, IsWhatThePolicyKeeps) {
  StepSpec s = tiny_step();
  const std::size_t full = floor_bytes(s);
  s.mode = StepMode::forward_backward;
  EXPECT_EQ(2 * floor_bytes(s), full);
  s.mode = StepMode::forward;
  EXPECT_EQ(4 * floor_bytes(s), full);
  s.mode = StepMode::full;
  s.precision = Precision::pure_bf16;
  EXPECT_EQ(2 * floor_bytes(s), full);
}

TEST(MemoryScaling, NaiveGrowsAsTheSquareFlashDoesNot) {
  ScalingRequest q;
  q.spec = tiny_step();
  q.rank.device = Device::meta();
  q.contexts = {256, 1024, 4096, 8192};
  q.attention = {"naive", "flash"};
  const std::vector<ScalingSeries> s = memory_scaling(q);
  ASSERT_EQ(s.size(), 2u);
  EXPECT_GT(s[0].fit.exponent, 1.75);
  EXPECT_GT(s[0].fit.last, 1.9);
  EXPECT_NEAR(s[1].fit.exponent, 1, 0.05);
  EXPECT_EQ(s[0].points[0].scores, 3u * 2 * 2 * 256 * 256 * 4);  // a matrix in each of three layers
  EXPECT_EQ(s[1].points[3].scores, 0u);
}

// The formula of the textbook against the schedule itself.
TEST(RecomputeSweep, FormulaFollowsThePrediction) {
  for (const char* attention : {"naive", "flash"}) {
    RecomputeSweepRequest q;
    q.spec = tiny_step();
    q.spec.model.layers = 16;
    q.spec.step.context = 256;
    q.rank.device = Device::meta();
    q.rank.variants.set("attention", attention);
    q.ks = {1, 2, 4, 8, 16};
    const RecomputeSweep s = recompute_sweep(q);
    ASSERT_GE(s.points.size(), 7u);
    EXPECT_EQ(s.points.front().recompute, Recompute::none);
    EXPECT_EQ(s.points.back().recompute, Recompute::nested);
    for (const SweepPoint& p : s.points) {
      EXPECT_GE(p.predicted.peak_total, s.floor);
      EXPECT_FALSE(p.measured);
      if (p.recompute.kind != Recompute::Kind::every) continue;
      EXPECT_NEAR(static_cast<double>(p.formula) / static_cast<double>(p.predicted.peak_total), 1, 0.1)
          << attention << " " << p.recompute.k;
      EXPECT_GT(p.flops, 1.1 * s.points.front().flops);
      EXPECT_GE(p.predicted.peak_total, s.points[s.best].predicted.peak_total);
    }
    const int64_t best = s.points[s.best].recompute.k;  // its neighbours were tried too
    EXPECT_TRUE(best == 1 || s.points[s.best - 1].recompute.k == best - 1);
    EXPECT_TRUE(best == 16 || s.points[s.best + 1].recompute.k == best + 1);
  }
}

TEST(RecomputeSweep, MeasuredIsPredicted) {
  RecomputeSweepRequest q;
  q.spec = tiny_step();
  q.ks = {1, 2};
  q.steps = 1;
  q.measure = [](const StepSpec&, const MemoryStats&, double) { return true; };
  for (const SweepPoint& p : recompute_sweep(q).points) {
    ASSERT_TRUE(p.measured);
    EXPECT_EQ(p.measured->peak_total, p.predicted.peak_total) << name_of(p.recompute);
    EXPECT_GT(p.timing.p50, 0);
  }
}

}  // namespace
}  // namespace kiln
