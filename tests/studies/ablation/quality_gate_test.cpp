// The gate lets every switch through and nothing that computes something else, however little.
#include "studies/ablation/quality_gate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/has.h"

namespace kiln {
namespace {

StepSpec little_step() {
  StepSpec s;
  s.model = {.vocab = 61, .d_model = 32, .d_ff = 72, .layers = 2, .heads = 4, .kv_heads = 4};
  s.step.batch = 2;
  s.step.context = 21;
  return s;
}

GateProbe probe(const AblationSetup& setup, int steps = 3) {
  RankOptions o;
  o.threads = 1;
  o.seed = 5;
  o.variants = setup.variants.ops;
  RankContext ctx(o);
  return probe_setup(ctx, setup, byte_tokens(setup.spec.model.vocab, ctx.pool()), steps);
}

AblationSetup setup_with(const std::vector<std::string_view>& on) {
  return ablation_setup(little_step(), on, Device::cpu());
}

std::string failure_of(const GateProbe& baseline, const AblationSetup& judged) {
  return why_not_passed(errors_against(baseline, probe(judged)), tolerance_of(judged.spec.precision));
}

TEST(QualityGate, EverySwitchPassesAndAllCombined) {
  const GateProbe baseline = probe(setup_with({}));
  const GateProbe longer =
      probe(setup_with({}), 30);  // a few batches of one text may be harder than the first
  EXPECT_LT(longer.last_loss, longer.first_loss) << "steps that learn nothing prove nothing";
  std::vector<std::string_view> all;
  for (const AblationSwitch& s : ablation_switches()) {
    if (s.name == "cuda_graph") continue;
    EXPECT_EQ(failure_of(baseline, setup_with({s.name})), "") << s.name;
    all.push_back(s.name);
  }
  EXPECT_EQ(failure_of(baseline, setup_with(all)), "");
}

TEST(QualityGate, TheSameSetupIsTheSameToTheBit) {
  const GateErrors e = errors_against(probe(setup_with({})), probe(setup_with({"prefetch", "recompute"})));
  EXPECT_EQ(e.logits, 0);
  EXPECT_EQ(e.gradients, 0);
  EXPECT_EQ(e.loss, 0);
}

TEST(QualityGate, Bf16NeedsAToleranceOfItsOwn) {
  const GateErrors e = errors_against(probe(setup_with({})), probe(setup_with({"bf16"})));
  EXPECT_EQ(why_not_passed(e, tolerance_of(Precision::bf16)), "");
  EXPECT_TRUE(has(why_not_passed(e, tolerance_of(Precision::fp32)), "logits are off by"));
}

TEST(QualityGate, AnotherModelIsStopped) {
  const GateProbe baseline = probe(setup_with({}));
  AblationSetup other = setup_with({"bf16"});
  other.spec.model.rope_theta = 100;  // q and k turned a little further
  EXPECT_TRUE(has(failure_of(baseline, other), "gradients of "));
  other = setup_with({"fused_rmsnorm"});
  other.spec.model.norm_eps = 1e-3f;
  const std::string why = failure_of(baseline, other);
  EXPECT_TRUE(has(why, "logits are off by"));
  EXPECT_TRUE(has(why, ", allowed is 2e-05")) << why;
}

TEST(QualityGate, AnUpdateThatIsWrongShowsInTheLossAlone) {
  const GateProbe baseline = probe(setup_with({}));
  AblationSetup other = setup_with({"fused_adamw"});
  other.spec.step.optimizer.adamw.eps = 1;  // steps that are far too small
  const std::string why = failure_of(baseline, other);
  EXPECT_TRUE(why.starts_with("the loss after training is off by")) << why;
}

// A step that is captured in its second run is replayed first in that one, so a gate that ended there would
// see nothing of what replays do to the weights.
TEST(QualityGate, TheLossIsThatAfterTwoUpdatesAtLeast) {
  const GateProbe one = probe(setup_with({}), 1), two = probe(setup_with({}), 2);
  EXPECT_EQ(one.steps, 2);
  EXPECT_EQ(one.last_loss, two.last_loss);
  EXPECT_NE(two.last_loss, probe(setup_with({}), 3).last_loss);
}

TEST(QualityGate, WhatIsNotFiniteNeverPasses) {
  GateProbe good;
  good.logits = {1, 2};
  good.gradients = {{"w", {3}}};
  good.last_loss = 2;
  GateProbe bad = good;
  const GateTolerance any{1e30, 1e30, 1e30};
  EXPECT_EQ(why_not_passed(errors_against(good, bad), any), "");
  bad.logits[1] = NAN;
  EXPECT_TRUE(has(why_not_passed(errors_against(good, bad), any), "logits"));
  bad = good;
  bad.gradients[0].values.push_back(0);
  EXPECT_TRUE(has(why_not_passed(errors_against(good, bad), any), "gradients of w"));
  bad = good;
  bad.last_loss = NAN;
  EXPECT_TRUE(has(why_not_passed(errors_against(good, bad), any), "the loss"));
  bad = good;
  bad.gradients.clear();
  EXPECT_FALSE(why_not_passed(errors_against(good, bad), any).empty());
  bad = good;
  bad.last_loss = 2.1;
  EXPECT_EQ(why_not_passed(errors_against(good, bad), GateTolerance{1, 1, 1} * 0.06), "");
  EXPECT_EQ(why_not_passed(errors_against(good, bad), GateTolerance{1, 1, 1} * 0.04),
            "the loss after training is off by 0.05, allowed is 0.04");
}

}  // namespace
}  // namespace kiln
