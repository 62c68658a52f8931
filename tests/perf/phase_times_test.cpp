#include "perf/phase_times.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "model/size_registry.h"
#include "perf/step_run.h"
#include "support/gpu.h"

namespace kiln {
namespace {

OpEvent event(const char* op, Pass pass, bool recomputed = false) {
  return {op, "naive", "", pass, recomputed, {}, {}};
}

TEST(PhaseWatch, FollowsAStepOfTwoMicroSteps) {
  PhaseWatch w;
  w.begin_step();
  auto at = [&](const char* op, Pass pass, bool recomputed = false) {
    w.advance(event(op, pass, recomputed));
    return w.phase();
  };
  EXPECT_EQ(at("embedding", Pass::forward), StepPart::forward);
  EXPECT_EQ(at("accumulate_loss", Pass::forward), StepPart::forward);
  EXPECT_EQ(at("linear", Pass::backward), StepPart::backward);
  EXPECT_EQ(at("linear", Pass::forward, true), StepPart::backward) << "done again for backward";
  EXPECT_EQ(at("embedding", Pass::forward), StepPart::forward) << "the next micro-step";
  EXPECT_EQ(at("linear", Pass::backward), StepPart::backward);
  EXPECT_EQ(at("square_sum", Pass::forward), StepPart::update);
  EXPECT_EQ(at("adamw", Pass::forward), StepPart::update);
  w.begin_step();
  EXPECT_EQ(w.phase(), StepPart::forward);
}

StepSpec nano(StepMode mode, bool graph) {
  StepSpec spec;
  spec.model = config_of(find_model_size("nano"));
  spec.mode = mode;
  spec.step.batch = 2;
  spec.step.context = 16;
  spec.step.graph = graph;
  return spec;
}

// Time that passes before the first op of a phase is the phase's before it.
class Sleeper final : public OpObserver {
 public:
  void on_op_begin(RankContext&, const OpEvent& e) override {
    if (e.op == "adamw") std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
};

TEST(PhaseTimes, AddUpToTheStep) {
  RankOptions rank;
  rank.threads = 1;
  RankContext ctx(rank);
  PhaseTimes times(ctx);
  Sleeper sleeper;
  ctx.add_observer(&sleeper);
  StepRun step(ctx, nano(StepMode::full, false));
  for (int i = 0; i < 2; ++i) {
    times.begin_step();
    step.run();
    const auto s = times.end_step();
    EXPECT_GT(s[0], 0);
    EXPECT_GT(s[1], 0);
    EXPECT_GE(s[2], 0.03) << "the update holds the nap";
    EXPECT_LT(s[0] + s[1], s[2] + 10);
  }
  step.finish();
  ctx.remove_observer(&sleeper);
}

TEST(PhaseTimes, AForwardHasNoOtherPhase) {
  RankOptions rank;
  rank.threads = 1;
  RankContext ctx(rank);
  PhaseTimes times(ctx);
  StepRun step(ctx, nano(StepMode::forward, false));
  times.begin_step();
  step.run();
  const auto s = times.end_step();
  EXPECT_GT(s[0], 0);
  EXPECT_EQ(s[1], 0);
  EXPECT_EQ(s[2], 0);
}

// Marks inside a graph are passed by every replay, each time anew.
TEST(CudaPhaseTimes, ReplayedStepsHavePhases) {
  KILN_NEEDS_GPU();
  RankOptions rank;
  rank.device = Device::cuda();
  RankContext ctx(rank);
  PhaseTimes times(ctx);
  StepRun step(ctx, nano(StepMode::full, true));
  for (int i = 0; i < 5; ++i) {
    times.begin_step();
    step.run();
    const auto s = times.end_step();
    for (double seconds : s) {
      EXPECT_GT(seconds, 0) << "step " << i;
      EXPECT_LT(seconds, 10) << "step " << i;
    }
  }
  EXPECT_TRUE(step.captured());
  step.finish();
}

}  // namespace
}  // namespace kiln
