// Steps that are not finite and are left out: training goes on as if their batch had not been there.
#include <gtest/gtest.h>

#include "autograd/op_observer.h"
#include "train/seams.h"
#include "train/trainer.h"

namespace kiln {
namespace {

// A token that is not in the vocabulary makes a batch whose loss is NaN.
std::vector<TinyBatch> bad_batches(const Trainer& t, int64_t number) {
  auto batches = t.batches(number);
  batches[0].tokens[5] = 61;
  return batches;
}

TinyRun skipping(int64_t most) {
  TinyRun run;
  run.step.max_skips = most;
  return run;
}

std::vector<std::byte> moments(Trainer& t) { return fetch_bytes(t.ctx, t.step->optimizer().state("v")); }

TEST(Skip, TrainingGoesOnAsIfTheBatchHadNotBeenThere) {
  Trainer without{TinyRun()};
  for (const int64_t s : {0, 1, 3, 4}) without.train(s);
  (void)without.step->finish();
  Trainer with(skipping(2));
  std::vector<BadStep> told;
  with.step->on_bad_step([&](const BadStep& bad) { told.push_back(bad); });
  for (const int64_t s : {0, 1}) with.train(s);
  with.train(bad_batches(with, 2), with.run.lr);
  EXPECT_EQ(with.step->finish().skip, 1);
  const auto before = with.weights();
  EXPECT_EQ(with.step->finish().skipped, 1) << "asked again, the same step is not explained again";
  EXPECT_EQ(with.weights(), before);
  for (const int64_t s : {3, 4}) {
    with.train(s);
    (void)with.step->finish();
  }
  EXPECT_EQ(with.weights(), without.weights());
  EXPECT_EQ(moments(with), moments(without));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].step, 3);
  EXPECT_TRUE(told[0].skipped);
  EXPECT_EQ(told[0].in_row, 1);
  EXPECT_EQ(told[0].what.find("[embedding]"), 0u) << told[0].what;
  EXPECT_EQ(told[0].batches.size(), static_cast<std::size_t>(with.run.step.micro_steps));
  EXPECT_EQ(told[0].batches[0].tokens[5], 61);
  EXPECT_EQ(static_cast<int64_t>(told[0].values.size()), told[0].shape.numel());
  EXPECT_TRUE(with.ctx.observers().empty()) << "the finder is still attached";
}

TEST(Skip, OneMoreInARowThanAllowedEndsTheRun) {
  Trainer t(skipping(2));
  t.train(0);
  (void)t.step->finish();
  const auto weights = t.weights();
  for (const int64_t s : {1, 2}) {
    t.train(bad_batches(t, s), t.run.lr);
    EXPECT_EQ(t.step->finish().skips_in_row, s);
  }
  t.train(bad_batches(t, 3), t.run.lr);
  const std::string said = complaint([&] { (void)t.step->finish(); });
  EXPECT_EQ(said.find("step 4 is not finite: [embedding]"), 0u) << said;
  EXPECT_NE(said.find("; the 2 steps before it were skipped"), std::string::npos) << said;
  EXPECT_EQ(t.weights(), weights);
}

TEST(Skip, AGoodStepInBetweenStartsTheCountAgain) {
  Trainer t(skipping(1));
  for (const bool bad : {true, false, true, false}) {
    t.train(bad ? bad_batches(t, 1) : t.batches(1), t.run.lr);
    EXPECT_EQ(t.step->finish().skips_in_row, bad ? 1 : 0);
  }
  EXPECT_EQ(t.step->finish().skipped, 2);
}

TEST(Skip, AWeightThatIsNotFiniteIsBlamedAndNotTheOpThatReadsIt) {
  Trainer t{TinyRun()};
  Param* damaged = nullptr;
  for (Param& p : t.model.params().params()) {
    if (p.name.find("layers.0.") != std::string::npos && damaged == nullptr) damaged = &p;
  }
  t.model.params().local_value(*damaged).data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  t.train(0);
  EXPECT_EQ(
      complaint([&] { (void)t.step->finish(); }),
      cat("step 1 is not finite: the weight ", damaged->name, " holds nan at element 3 before the step"));
}

}  // namespace
}  // namespace kiln
