#include "perf/timing/phase_times.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "model/size_registry.h"
#include "studies/step/synthetic_step.h"
#include "support/gpu.h"

namespace kiln {
namespace {

TEST(StepPhase, IsWhatTheRankIsAbout) {
  RankContext ctx;
  EXPECT_EQ(phase_of(ctx), StepPhase::forward) << "no phase was declared";
  const PhaseGuard update(ctx, Phase::update);
  EXPECT_EQ(phase_of(ctx), StepPhase::update);
  {
    const PhaseGuard backward(ctx, Phase::backward);
    EXPECT_EQ(phase_of(ctx), StepPhase::backward);
    const PhaseGuard again(ctx, Phase::recompute);
    EXPECT_EQ(phase_of(ctx), StepPhase::backward) << "done again for backward";
  }
  EXPECT_EQ(phase_of(ctx), StepPhase::update);
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
  SyntheticStep step(ctx, nano(StepMode::full, false));
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

// What the phases of each micro-step take is added up: a nap follows the first op of every backward.
TEST(PhaseTimes, MicroStepsShareTheirPhases) {
  class NapInBackward final : public OpObserver {
   public:
    void on_op_end(RankContext& ctx, const OpEvent&) override {
      const bool backward = phase_of(ctx) == StepPhase::backward;
      if (backward && !was_) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      was_ = backward;
    }

   private:
    bool was_ = false;
  };
  for (Recompute recompute : {Recompute(Recompute::none), Recompute(Recompute::block)}) {
    RankOptions rank;
    rank.threads = 1;
    RankContext ctx(rank);
    PhaseTimes times(ctx);
    NapInBackward nap;
    ctx.add_observer(&nap);
    StepSpec spec = nano(StepMode::full, false);
    spec.model.recompute = recompute;
    spec.step.micro_steps = 3;
    SyntheticStep step(ctx, spec);
    times.begin_step();
    step.run();
    EXPECT_GE(times.end_step()[1], 0.06) << "a nap in each of three backwards";
    step.finish();
    ctx.remove_observer(&nap);
  }
}

TEST(PhaseTimes, AForwardHasNoOtherPhase) {
  RankOptions rank;
  rank.threads = 1;
  RankContext ctx(rank);
  PhaseTimes times(ctx);
  SyntheticStep step(ctx, nano(StepMode::forward, false));
  times.begin_step();
  step.run();
  const auto s = times.end_step();
  EXPECT_GT(s[0], 0);
  EXPECT_EQ(s[1], 0);
  EXPECT_EQ(s[2], 0);
}

// Marks inside a graph are passed by every replay.
TEST(CudaPhaseTimes, ReplayedStepsHavePhases) {
  KILN_NEEDS_GPU();
  RankOptions rank;
  rank.device = Device::cuda();
  RankContext ctx(rank);
  PhaseTimes times(ctx);
  SyntheticStep step(ctx, nano(StepMode::full, true));
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
