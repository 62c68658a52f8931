// The step's own promises: what it refuses, what an error in the middle leaves behind, and that clipping,
// decay and split masters reach the weights. Steps whose numbers go bad: bad_step_test.cpp.
#include "train/step.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/half.h"
#include "support/gpu.h"
#include "train/trainer.h"

namespace kiln {
namespace {

TEST(TrainStep, ImpossibleOptionsAreRefused) {
  auto with = [](auto change) {
    TinyRun run;
    change(run.step);
    return complaint([&] { Trainer t(run); });
  };
  EXPECT_EQ(with([](StepOptions& o) { o.micro_steps = 0; }), "a step of 0 micro-steps of 2 x 11 tokens");
  EXPECT_EQ(with([](StepOptions& o) { o.batch = 0; }), "a step of 1 micro-steps of 0 x 11 tokens");
  EXPECT_EQ(with([](StepOptions& o) { o.context = -3; }), "a step of 1 micro-steps of 2 x -3 tokens");
  EXPECT_EQ(with([](StepOptions& o) { o.max_norm = -1; }), "max_norm is -1");
  EXPECT_EQ(with([](StepOptions& o) { o.max_norm = std::nan(""); }), "max_norm is nan");
}

TEST(TrainStep, FinishBeforeTheFirstStepIsAnError) {
  Trainer t{TinyRun()};
  EXPECT_EQ(complaint([&] { t.step->finish(); }), "finish() before the first step: there is no result yet");
}

TEST(TrainStep, WrongArgumentsAreRefusedAndDoNotCount) {
  TinyRun run;
  run.step.micro_steps = 2;
  Trainer clean(run), t(run);
  clean.train(0);
  const auto wanted = clean.train(1);
  t.train(0);
  auto short_batch = t.batches(1);
  short_batch[1].tokens.pop_back();  // the first one is good: it must not be run alone
  EXPECT_EQ(complaint([&] { t.train(short_batch, run.lr); }),
            "a micro-batch of 21 tokens and 22 targets, 22 of each are needed");
  auto one = t.batches(1);
  one.pop_back();
  EXPECT_EQ(complaint([&] { t.train(one, run.lr); }), "a step of 2 micro-steps was given 1 micro-batches");
  EXPECT_EQ(complaint([&] { t.train(t.batches(1), std::nan("")); }), "the learning rate is nan");
  const auto got = t.train(1);
  EXPECT_EQ(got->loss, wanted->loss);
  EXPECT_EQ(t.step->finish().step, 2);
  EXPECT_EQ(t.weights(), clean.weights());
}

TEST(TrainStep, AStepThatBreaksOffAnywhereCanBeRunAgain) {
  for (Recompute recompute : {Recompute::none, Recompute::nested}) {
    TinyRun run;
    run.model.recompute = recompute;
    run.step.micro_steps = 2;
    Trainer clean(run);
    clean.train(0);
    const int64_t before = clean.ctx.allocator().allocation_count();
    const double first_loss = clean.train(1)->loss;
    const int64_t allocations = clean.ctx.allocator().allocation_count() - before;
    const StepScalars wanted = clean.step->finish();
    for (int64_t n = 1; n <= allocations; n += 3) {
      Trainer t(run);
      t.train(0);
      t.ctx.allocator().fail_at(n);
      EXPECT_NE(complaint([&] { t.train(1); }).find("out of memory"), std::string::npos);
      EXPECT_EQ(t.train(1)->loss, first_loss);  // of the step before, not of the one that broke off
      EXPECT_EQ(t.step->finish().loss, wanted.loss);
      EXPECT_EQ(t.step->finish().step, 2);
      ASSERT_EQ(t.weights(), clean.weights()) << "allocation " << n << " of " << allocations;
    }
  }
}

double norm_of(const std::vector<float>& v) {
  double squares = 0;
  for (double x : v) squares += x * x;
  return std::sqrt(squares);
}

TEST(TrainStep, ClippingReachesTheOptimizer) {
  TinyRun run;
  run.step.max_norm = 0;
  Trainer free(run);
  free.train(0);
  const double norm = free.step->finish().grad_norm;
  EXPECT_NEAR(norm_of(free.floats(free.step->optimizer().state("m"))) / norm, 0.1,
              1e-6);  // m = (1 - beta1) g
  run.step.max_norm = norm / 4;
  Trainer clipped(run);
  clipped.train(0);
  EXPECT_EQ(clipped.step->finish().grad_norm, norm);  // before clipping
  EXPECT_NEAR(norm_of(clipped.floats(clipped.step->optimizer().state("m"))) / norm, 0.1 / 4, 1e-6);
}

TEST(TrainStep, DecayReachesTheWeightsThatDecay) {
  TinyRun run;
  run.step.optimizer.adamw.decay = 0;
  Trainer without(run);
  run.step.optimizer.adamw.decay = 0.5;
  Trainer with(run);
  without.train(0);
  with.train(0);
  const auto &a = without.model.params().params(), &b = with.model.params().params();
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(with.floats(b[i].value) != without.floats(a[i].value), a[i].decay) << a[i].name;
  }
}

TEST(TrainStep, EverySpanHasMomentsOfItsOwn) {
  const TinyRun run;
  Trainer t(run);
  t.train(0);
  const StepScalars s = t.step->finish();
  const auto m = t.floats(t.step->optimizer().state("m"));
  std::size_t at = 0;
  for (const ParamSpan& span : t.model.params().spans()) {
    const auto g = t.floats(span.grad);
    for (std::size_t i = 0; i < g.size(); ++i, ++at)
      ASSERT_NEAR(m[at], 0.1 * s.clip * static_cast<double>(g[i]), 1e-8) << span.name << " " << i;
  }
  EXPECT_EQ(at, m.size());
}

// Steps far smaller than bf16's spacing must not be lost: that is what the low halves are for.
TEST(TrainStep, SplitMastersKeepSmallSteps) {
  TinyRun run;
  run.precision = Precision::bf16;
  run.lr = 1e-6;
  run.step.optimizer.adamw.decay = 0;
  Trainer t(run);
  auto masters = [&] {
    const Tensor &high = t.model.params().values(), &low = t.model.params().low();
    std::vector<float> w;
    w.reserve(static_cast<std::size_t>(high.numel()));
    for (int64_t i = 0; i < high.numel(); ++i)
      w.push_back(join_float(high.data<bf16>()[i], low.data<int16_t>()[i]));
    return w;
  };
  const auto before = masters();
  t.train(0);
  t.step->finish();
  const auto after = masters();
  int64_t moved = 0, with_gradient = 0;
  const auto g = t.floats(t.model.params().grads());
  for (std::size_t i = 0; i < g.size(); ++i) {
    EXPECT_NEAR(after[i], before[i], 1.2e-6);
    if (std::abs(g[i]) < 1e-4f || std::abs(before[i]) > 2) continue;
    ++with_gradient;
    moved += after[i] != before[i];
  }
  EXPECT_GT(with_gradient, 1000);
  EXPECT_EQ(moved, with_gradient);
}

class CudaTrainStep : public testing::Test {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }
};

// Breaks off in the second step, in which some regions are captured and others replayed.
TEST_F(CudaTrainStep, AStepThatBreaksOffWhileCapturingCanBeRunAgain) {
  for (int micro_steps : {1, 2, 3}) {
    TinyRun run;
    run.step.micro_steps = micro_steps;
    Trainer clean(run, Device::cuda());
    clean.train(0);
    const int64_t before = clean.ctx.allocator().allocation_count();
    clean.train(1);
    const int64_t allocations = clean.ctx.allocator().allocation_count() - before;
    for (int s : {2, 3, 4}) clean.train(s);
    const StepScalars wanted = clean.step->finish();
    EXPECT_TRUE(clean.step->captured());
    for (int64_t n = 1; n <= allocations; n += allocations / 12 + 1) {
      Trainer t(run, Device::cuda());
      t.train(0);
      t.ctx.allocator().fail_at(n);
      EXPECT_NE(complaint([&] { t.train(1); }).find("out of memory"), std::string::npos);
      for (int s : {1, 2, 3, 4}) t.train(s);
      const StepScalars got = t.step->finish();
      EXPECT_EQ(got.step, 5);
      EXPECT_EQ(got.loss, wanted.loss) << "allocation " << n << " of " << allocations;
      EXPECT_TRUE(t.step->captured());
      ASSERT_EQ(t.weights(), clean.weights()) << "allocation " << n << " of " << allocations;
    }
  }
}

}  // namespace
}  // namespace kiln
