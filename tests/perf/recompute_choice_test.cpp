// The policy of a budget against every plan there is, on a stack small enough to try them all.
#include "perf/memory/recompute_choice.h"

#include <gtest/gtest.h>

#include "support/tiny_run.h"
#include "train/step_choice.h"

namespace kiln {
namespace {

struct Stack {
  MemoryRequest request;
  RankOptions rank;
  StepClock clock = clock_of("", Device::cpu(), 2, DType::f32);

  explicit Stack(int64_t layers) {
    const TinyRun run;
    request.model = run.model;
    request.model.layers = layers;
    request.step = run.step;
    request.step.batch = 4;
    request.step.context = 64;
    rank.threads = 2;
  }
  PolicyPoint point(const Recompute& r) const {
    MemoryRequest q = request;
    q.model.recompute = r;
    const StepPrediction p = predict_step(q, rank);
    return {r, p.memory.peak_total, step_seconds(q, p, clock)};
  }
  PolicyChoice choose(std::size_t budget) const { return choose_policy(request, rank, budget, clock); }
};

TEST(RecomputeChoice, NothingIsRecomputedWhereEverythingFits) {
  const Stack stack(3);
  const std::size_t all = stack.point(Recompute::none).peak;
  EXPECT_EQ(stack.choose(all).chosen->recompute, Recompute::none);
  EXPECT_EQ(stack.choose(all).probes, 1);
  EXPECT_NE(stack.choose(all - 1).chosen->recompute, Recompute::none);
}

TEST(RecomputeChoice, IsTheFastestOfAllPlansThatFit) {
  const Stack stack(2);
  std::vector<PolicyPoint> all;  // any set for either block
  for (unsigned a = 0; a < 1U << kPieces; a += 3) {
    for (unsigned b = 0; b < 1U << kPieces; b += 5)
      all.push_back(stack.point(Recompute::plan({{PieceSet::from_bits(a), 1}, {PieceSet::from_bits(b), 1}})));
  }
  const std::size_t most = stack.point(Recompute::none).peak;
  std::size_t least = most;
  for (const PolicyPoint& p : all) least = std::min(least, p.peak);
  for (const double share : {0.95, 0.8, 0.6, 0.4, 0.2}) {
    const auto budget = least + static_cast<std::size_t>(share * static_cast<double>(most - least));
    const PolicyChoice choice = stack.choose(budget);
    ASSERT_TRUE(choice.chosen) << share;
    const PolicyPoint again = stack.point(choice.chosen->recompute);
    EXPECT_EQ(again.peak, choice.chosen->peak);
    EXPECT_LE(again.peak, budget);
    for (const PolicyPoint& p : all) {
      if (p.peak > budget) continue;
      EXPECT_LE(choice.chosen->seconds, p.seconds * (1 + 1e-9)) << share << " " << name_of(p.recompute);
    }
  }
}

TEST(RecomputeChoice, SpansGoWherePlansDoNotReachAndBelowThemIsAnError) {
  const Stack stack(16);
  const std::size_t nested = stack.point(Recompute::nested).peak;
  const PolicyChoice choice = stack.choose(nested);
  ASSERT_TRUE(choice.chosen);
  EXPECT_NE(choice.chosen->recompute.kind, Recompute::Kind::plan);
  const PolicyChoice none = stack.choose(1000);
  EXPECT_FALSE(none.chosen);
  try {
    (void)chosen_or_throw(none, 1000);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::usage);
    const std::string said = e.what();
    EXPECT_NE(said.find(cat("(", none.least.peak, " bytes), by --recompute ", name_of(none.least.recompute))),
              std::string::npos)
        << said;
  }
  EXPECT_EQ(stack.point(none.least.recompute).peak, none.least.peak);
}

TEST(StepChoice, TheFittedStepHasTheSequencesOfTheAskedOneAndFits) {
  Stack stack(4);
  stack.request.step.batch = 8;
  stack.request.step.micro_steps = 2;
  MemoryRequest one = stack.request;
  one.step.batch = 2;
  one.step.micro_steps = 8;
  one.layout.narrow_grads = false;
  const std::size_t memory = predict_memory(one, stack.rank).peak_total;
  const StepFit fit = fit_step(stack.request, stack.rank, memory, stack.clock);
  ASSERT_TRUE(fit.chosen);
  EXPECT_EQ(fit.chosen->batch * fit.chosen->micro_steps, 16);
  EXPECT_LE(fit.chosen->policy.peak, memory);
  one.step.batch = fit.chosen->batch;
  one.step.micro_steps = fit.chosen->micro_steps;
  one.model.recompute = fit.chosen->policy.recompute;
  EXPECT_EQ(predict_memory(one, stack.rank).peak_total, fit.chosen->policy.peak);
  EXPECT_FALSE(fit_step(stack.request, stack.rank, 1000, stack.clock).chosen);
  EXPECT_GT(fit_step(stack.request, stack.rank, 1000, stack.clock).least.policy.peak, 1000u);
}

TEST(StepChoice, WaysOutFit) {
  Stack stack(4);
  const std::size_t all = stack.point(Recompute::none).peak;
  const std::vector<WayOut> ways = ways_out(stack.request, stack.rank, all - all / 5, stack.clock);
  ASSERT_GE(ways.size(), 2u);
  for (const WayOut& w : ways) {
    EXPECT_LE(w.peak, all - all / 5) << w.options;
    EXPECT_GT(w.seconds, 0) << w.options;
  }
  EXPECT_NE(ways_text(ways, stack.clock).find("--recompute plan:"), std::string::npos)
      << ways_text(ways, stack.clock);
  EXPECT_NE(ways_text(ways, stack.clock).find("--grad-accum"), std::string::npos);
}

}  // namespace
}  // namespace kiln
