// fp16's loss scale: an overflow costs one update and halves it, good steps double it, and only what no scale
// can cure ends the run.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "train/trainer.h"

namespace kiln {
namespace {

TinyRun fp16_run(double initial, int64_t interval) {
  TinyRun run;
  run.precision = Precision::fp16;
  run.step.loss_scale = {.initial = initial, .interval = interval};
  return run;
}

TEST(LossScale, AnOverflowSkipsTheUpdateAndHalvesTheScale) {
  Trainer t(fp16_run(0x1p40, 2000));
  const auto before = t.weights();
  t.train(0);
  StepScalars s = t.step->finish();
  EXPECT_EQ(s.skip, 1);
  EXPECT_EQ(s.skipped, 1);
  EXPECT_EQ(s.step, 0);
  EXPECT_EQ(s.rate1_power, 1);
  EXPECT_EQ(s.loss_scale, 0x1p39);
  EXPECT_FALSE(std::isfinite(s.grad_norm));
  EXPECT_TRUE(std::isfinite(s.loss));
  EXPECT_EQ(t.weights(), before);
  for (float m : t.floats(t.step->optimizer().state("m"))) ASSERT_EQ(m, 0);
  int attempts = 1;
  while (s.skip == 1 && attempts < 40) {
    t.train(attempts++);
    s = t.step->finish();
  }
  EXPECT_EQ(s.skip, 0);
  EXPECT_EQ(s.step, 1);
  EXPECT_EQ(s.skipped, attempts - 1);
  EXPECT_EQ(s.loss_scale, std::ldexp(1.0, 41 - attempts));
  EXPECT_GT(s.loss_scale, 1);
  EXPECT_TRUE(std::isfinite(s.grad_norm));
  EXPECT_NE(t.weights(), before);
}

TEST(LossScale, GoodStepsDoubleIt) {
  Trainer t(fp16_run(64, 3));
  const double wanted[] = {64, 64, 128, 128, 128, 256, 256};
  for (int i = 0; i < 7; ++i) {
    t.train(i);
    const StepScalars s = t.step->finish();
    EXPECT_EQ(s.loss_scale, wanted[i]) << i;
    EXPECT_EQ(s.good_steps, (i + 1) % 3);
    EXPECT_EQ(s.skip, 0);
  }
}

TEST(LossScale, NormAndUpdateDoNotDependOnIt) {
  Trainer small(fp16_run(16, 2000)), large(fp16_run(4096, 2000));
  TinyRun wide = fp16_run(1, 0);
  wide.precision = Precision::fp32;
  Trainer reference(wide);
  StepScalars a, b, r;
  for (int i = 0; i < 3; ++i) {
    small.train(i);
    large.train(i);
    reference.train(i);
    a = small.step->finish();
    b = large.step->finish();
    r = reference.step->finish();
    EXPECT_NEAR(a.grad_norm / b.grad_norm, 1, 1e-7);  // powers of two: the same but for what underflows, 1e-9
    EXPECT_NEAR(a.grad_norm / r.grad_norm, 1, 3e-4);  // 7e-5 is seen: products of 11 bits
    EXPECT_NEAR(a.clip / r.clip, 1, 3e-4);
    EXPECT_EQ(a.unscale, 1.0 / 16);
  }
  EXPECT_LT(r.clip, 1);  // so that clipping is part of what was compared
  const auto m = small.floats(small.step->optimizer().state("m")),
             n = reference.floats(reference.step->optimizer().state("m"));
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < m.size(); ++i) {
    difference += (m[i] - n[i]) * (m[i] - n[i]);
    norm += n[i] * n[i];
  }
  EXPECT_LT(std::sqrt(difference / norm), 1e-2);
}

// Gradients this small are lost in fp16 without a scale.
TEST(LossScale, ItKeepsSmallGradientsAlive) {
  auto lost = [](double scale) {
    TinyRun run = fp16_run(scale, 2000);
    run.step.micro_steps = 256;  // each brings 1/256 of the mean
    Trainer t(run);
    int64_t zeros = 0;
    class Count final : public OpObserver {
     public:
      explicit Count(int64_t& zeros) : zeros_(zeros) {}
      void on_op_end(RankContext&, const OpEvent& e) override {
        if (e.op != "swiglu" || e.pass != Pass::backward) return;
        const Tensor& t = e.outputs[0].tensor;
        for (int64_t r = 0; r < t.shape().rows(); ++r) {
          for (int64_t c = 0; c < t.shape().last(); ++c)
            zeros_ += (t.data<fp16>()[r * t.row_stride() + c].bits & 0x7fff) == 0;
        }
      }

     private:
      int64_t& zeros_;
    } count(zeros);
    t.ctx.add_observer(&count);
    t.train(0);
    (void)t.step->finish();
    t.ctx.remove_observer(&count);
    return zeros;
  };
  const int64_t without = lost(1), with = lost(65536);
  EXPECT_GT(without, 1000);
  EXPECT_LT(with, without / 100);
}

TEST(LossScale, WhatOverflowsAtScaleOneIsNamed) {
  class Planter final : public OpObserver {
    void on_op_end(RankContext&, const OpEvent& e) override {
      if (e.op == "swiglu" && e.pass == Pass::backward)
        e.outputs[0].tensor.data<fp16>()[0] = fp16(std::numeric_limits<float>::infinity());
    }
  };
  Trainer t(fp16_run(4, 2000));
  const auto before = t.weights();
  Planter planter;
  t.ctx.add_observer(&planter);
  for (double scale : {2.0, 1.0}) {
    t.train(0);
    const StepScalars s = t.step->finish();
    EXPECT_EQ(s.skip, 1);
    EXPECT_EQ(s.loss_scale, scale);
  }
  t.train(0);
  const std::string said = complaint([&] { t.step->finish(); });
  EXPECT_EQ(said.find("step 3 is not finite: [swiglu] fused backward in layers.0.mlp"), 0u) << said;
  EXPECT_EQ(complaint([&] { t.train(1); }), said);
  EXPECT_EQ(t.weights(), before);
  t.ctx.remove_observer(&planter);
}

// The loss itself is not scaled: no scale makes a token outside the vocabulary finite.
TEST(LossScale, ALossThatIsNotFiniteEndsTheRunAtOnce) {
  Trainer t(fp16_run(65536, 2000));
  auto batches = t.batches(0);
  batches[0].tokens[5] = 61;
  t.train(batches, t.run.lr);
  EXPECT_EQ(complaint([&] { t.step->finish(); }).find("step 1 is not finite: [embedding]"), 0u);
}

TEST(LossScale, AFixedScaleSkipsNothing) {
  Trainer t(fp16_run(0x1p40, 0));
  t.train(0);
  EXPECT_EQ(complaint([&] { t.step->finish(); }).find("step 1 is not finite"), 0u);
}

TEST(LossScale, ImpossibleScalesAreRefused) {
  for (double initial : {0.5, 0.0, -1.0, std::nan(""), static_cast<double>(INFINITY)})
    EXPECT_EQ(complaint([&] { Trainer t(fp16_run(initial, 1)); }).find("the loss scale is "), 0u) << initial;
  EXPECT_EQ(complaint([&] { Trainer t(fp16_run(1, -1)); }), "the loss scale grows every -1 steps");
}

TEST(LossScale, OtherPrecisionsLeaveItAlone) {
  TinyRun run;
  run.step.loss_scale.initial = 1024;
  Trainer t(run);
  t.train(0);
  const StepScalars s = t.step->finish();
  EXPECT_EQ(s.loss_scale, 1);
  EXPECT_EQ(s.unscale, 1);
  EXPECT_EQ(s.good_steps, 0);
}

}  // namespace
}  // namespace kiln
