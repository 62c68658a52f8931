// Steps traced on the CPU: what the tracer sees is what ran.
#include "perf/trace/step_tracer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "autograd/tape.h"
#include "perf/trace/nvtx_ranges.h"
#include "studies/profile/profile.h"
#include "studies/step/synthetic_step.h"
#include "train/presets.h"

namespace kiln {
namespace {

StepSpec little(const char* preset = "optimized") {
  ModelSize size = find_model_size("nano");
  size.vocab = 61;
  StepSpec spec;
  spec.model = config_of(size);
  choose_variants(preset, "").apply_to(spec.model);
  spec.step.batch = 2;
  spec.step.context = 11;
  return spec;
}

RankOptions rank(const char* preset = "optimized") {
  RankOptions o;
  o.threads = 1;
  o.variants = choose_variants(preset, "").ops;
  return o;
}

TracedSteps traced(RankContext& ctx, SyntheticStep& step, int steps = 2) {
  return trace_by_clock(ctx, {[&] { step.run(); }, [&] { step.finish(); }}, {.warmups = 1, .steps = steps});
}

std::set<std::string> scopes(const Trace& t, StepPhase phase) {
  std::set<std::string> all;
  for (const TracedOp& op : t.ops) {
    if (op.phase == phase) all.insert(op.scope);
  }
  return all;
}

TEST(StepTracer, SeesEveryOpOnceWithItsPhaseAndScope) {
  RankContext ctx(rank());
  SyntheticStep step(ctx, little());
  const TracedSteps result = traced(ctx, step, 3);
  EXPECT_EQ(result.source, TraceSource::clock);
  ASSERT_EQ(result.steps.size(), 3U);
  EXPECT_EQ(result.timer.samples.size(), 3U);
  EXPECT_EQ(result.traced.samples.size(), 3U);
  EXPECT_TRUE(ctx.observers().empty());
  const Trace& t = result.median();
  EXPECT_EQ(t.ops.size(), plan_step(little(), rank()).ops.size());
  ASSERT_EQ(t.spans.size(), t.ops.size());
  double before = t.begin_us;
  for (const TraceSpan& s : t.spans) {
    EXPECT_GE(s.begin_us, before);
    EXPECT_GE(s.end_us, s.begin_us);
    before = s.end_us;
  }
  EXPECT_GE(t.end_us, before);
  const std::set<std::string> forward = scopes(t, StepPhase::forward),
                              backward = scopes(t, StepPhase::backward);
  for (const char* scope : {"embed_tokens", "layers.0.attention", "layers.1.mlp", "loss"}) {
    EXPECT_TRUE(forward.count(scope)) << scope;
    EXPECT_TRUE(backward.count(scope)) << scope;
  }
  EXPECT_EQ(scopes(t, StepPhase::update), std::set<std::string>{""});
  for (const TracedOp& op : t.ops) {
    EXPECT_EQ(op.op == "adamw", op.op == "adamw" && op.phase == StepPhase::update);
  }
}

TEST(StepTracer, PhasesFollowTheTapeAndNotThePass) {
  StepSpec spec = little();
  spec.precision = Precision::autocast;  // weights are cast for the matmuls of backward too
  for (Recompute recompute : {Recompute::none, Recompute::block}) {
    spec.model.recompute = recompute;
    RankContext ctx(rank());
    SyntheticStep step(ctx, spec);
    const Trace t = traced(ctx, step).median();
    int casts = 0, again = 0;
    for (const TracedOp& op : t.ops) {
      casts += op.op == "cast" && op.phase == StepPhase::backward && !op.backward ? 1 : 0;
      again += op.recomputed && op.op == "attention" ? 1 : 0;
      EXPECT_TRUE(!(op.recomputed || op.backward) || op.phase == StepPhase::backward)
          << op.op << " " << op.scope;
    }
    EXPECT_GT(casts, 0);
    EXPECT_EQ(again, recompute == Recompute::none ? 0 : 2);
  }
}

TEST(StepTracer, AttentionMadeOfOpsHasItsPartsNamed) {
  RankContext ctx(rank("baseline"));
  SyntheticStep step(ctx, little("baseline"));
  const Trace t = traced(ctx, step).median();
  const auto parts = attention_parts(t, {{1e9, 1e9}});
  ASSERT_TRUE(parts);
  for (const AttentionPart& p : *parts) {
    EXPECT_EQ(p.calls, 2) << p.name;  // layers
    EXPECT_GT(p.ms, 0) << p.name;
    EXPECT_GT(p.cost.flops, 0) << p.name;
  }
  EXPECT_TRUE(scopes(t, StepPhase::backward).count("layers.0.attention.softmax"));
}

// 6 x weights that are multiplied + 6 x layers x d_model x context, a token.
TEST(StepTracer, ModelOperationsAreThoseOfTheUsualFormula) {
  for (const char* preset : {"optimized", "baseline"}) {
    for (Recompute recompute : {Recompute::none, Recompute::block}) {
      StepSpec spec = little(preset);
      spec.model.recompute = recompute;
      spec.step.micro_steps = 2;
      RankContext ctx(rank(preset));
      SyntheticStep step(ctx, spec);
      const RangeRow all = ranges_of(traced(ctx, step).median(), {{1, 1}, 0}, model_work(spec)).front();
      const double weights = 2 * (4 * 64 * 64 + 3 * 64 * 192) + 61 * 64, tokens = 2 * 2 * 11;
      EXPECT_NEAR(all.model_causal, (6 * weights + 6.0 * 2 * 64 * 11) * tokens, 1) << preset;
      EXPECT_NEAR(all.model_dense, (6 * weights + 12.0 * 2 * 64 * 11) * tokens, 1) << preset;
      EXPECT_GT(all.cost.flops, recompute == Recompute::none ? 0 : all.model_causal) << preset;
    }
  }
}

TEST(StepTracer, MemoryIsWhatTheAllocatorSays) {
  RankContext ctx(rank());
  SyntheticStep step(ctx, little());
  step.run();
  step.finish();
  OpTracer tracer(ctx);
  tracer.attach();
  const std::size_t before = ctx.allocator().stats().live_total;
  ctx.allocator().reset_peaks();
  tracer.begin_step();
  step.run();
  step.finish();
  const Trace t = tracer.end_step();
  std::size_t peak = 0;
  for (const MemoryPoint& p : t.memory) peak = std::max(peak, p.bytes);
  EXPECT_EQ(t.memory.front().bytes, before);
  EXPECT_EQ(t.memory.back().bytes, ctx.allocator().stats().live_total);
  EXPECT_EQ(peak, ctx.allocator().stats().peak_total);
  tracer.detach();
  EXPECT_TRUE(ctx.observers().empty());
}

// Marks on the CPU are the clock: the way of a GPU without CUPTI, run here.
TEST(StepTracer, MarksAroundOpsGiveTheSameOps) {
  RankContext ctx(rank());
  SyntheticStep step(ctx, little());
  const TracedSteps result =
      trace_by_events(ctx, {[&] { step.run(); }, [&] { step.finish(); }}, {.warmups = 1, .steps = 2});
  EXPECT_EQ(result.source, TraceSource::events);
  const Trace& t = result.median();
  ASSERT_EQ(t.spans.size(), t.ops.size());
  double before = t.begin_us;
  for (const TraceSpan& s : t.spans) {
    EXPECT_EQ(s.lane, TraceLane::gpu);
    EXPECT_GE(s.begin_us, before - 1e-3);
    before = s.end_us;
  }
  EXPECT_GE(t.end_us, before - 1e-3);
  for (std::size_t i = 1; i < t.memory.size(); ++i) EXPECT_GE(t.memory[i].at_us, t.memory[i - 1].at_us);
}

TEST(StepTracer, MemoryMovesToWhereItsOpRan) {
  Trace t;
  t.ops.resize(3);
  t.begin_us = 10;
  t.end_us = 100;
  t.spans = {{TraceLane::gpu, KernelGroup::norm, "a", 0, 20, 30},
             {TraceLane::gpu, KernelGroup::norm, "c", 2, 60, 90}};
  t.memory = {{1, 5}, {2, 6}, {3, 7}, {4, 8}};
  place_memory(t, {0, 1, 2, 3});
  EXPECT_EQ(t.memory[0].at_us, 20);
  EXPECT_EQ(t.memory[1].at_us, 60);  // the second op ran no kernel: the next one's
  EXPECT_EQ(t.memory[2].at_us, 60);
  EXPECT_EQ(t.memory[3].at_us, 100);
}

TEST(StepTracer, SlowStepsAreTracedFewerTimes) {
  RankContext ctx(rank());
  SyntheticStep step(ctx, little());
  const TracedSteps result = trace_by_clock(ctx, {[&] { step.run(); }, [&] { step.finish(); }},
                                            {.warmups = 1, .steps = 1000, .max_seconds = 0});
  EXPECT_EQ(result.steps.size(), 1U);
}

TEST(StepTracer, TheSmallestOpTakesTime) {
  RankContext ctx(rank());
  EXPECT_GT(smallest_op_ms(ctx), 0);
}

}  // namespace
}  // namespace kiln
