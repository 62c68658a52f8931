// Scaled rotary frequencies against figures that were reckoned apart, by the formulas of the models' own
// papers and configurations (llama3: Llama 3.1's; dynamic: "NTK-aware").
#include "ops/rope/rope_scaling.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/config.h"
#include "ops/cases/sampled_check.h"
#include "ops/rope/rope.h"
#include "studies/gate/sampling.h"
#include "studies/gate/step_cases.h"
#include "support/temp_folder.h"
#include "train/presets.h"

namespace kiln {
namespace {

using Kind = RopeScaling::Kind;

void expect_near(double got, double want) { EXPECT_NEAR(got / want, 1, 1e-12) << got; }

TEST(RopeScaling, Llama3DividesSlowPairsAndLeavesQuickOnes) {
  const RopeScaling s{.kind = Kind::llama3, .factor = 8, .trained = 8192, .slow_turns = 1, .quick_turns = 4};
  const auto at = [&](int64_t pair) { return rope_frequency(500000, 128, pair, 100, s); };
  const std::pair<int64_t, double> wanted[] = {{0, 1.0},
                                               {20, 0.016560440080994446},
                                               {28, 0.0032114459947525913},
                                               {29, 0.002166570763503359},
                                               {32, 0.0005248461609929547},
                                               {34, 0.00017850781276799638},
                                               {35, 9.556212353964683e-05},
                                               {36, 7.78465527393245e-05},
                                               {45, 1.2297638677963614e-05},
                                               {63, 3.068925988914511e-07}};
  for (const auto& [pair, frequency] : wanted) expect_near(at(pair), frequency);
  expect_near(at(63), rope_frequency(500000, 128, 63, 100, {}) / 8);
  EXPECT_EQ(at(20), rope_frequency(500000, 128, 20, 100, {}));
}

TEST(RopeScaling, DynamicGrowsThetaWithTheSequence) {
  const RopeScaling s{.kind = Kind::dynamic, .factor = 2, .trained = 512};
  const std::pair<int64_t, double> wanted[] = {
      {0, 1.0}, {1, 0.2715248457691725}, {4, 0.005435485014277875}, {7, 0.00010880955389826682}};
  for (const auto& [pair, frequency] : wanted)
    expect_near(rope_frequency(10000, 16, pair, 1000, s), frequency);
  for (const int64_t pair : {0, 1, 7})
    EXPECT_EQ(rope_frequency(10000, 16, pair, 512, s), rope_frequency(10000, 16, pair, 1, {}))
        << "as it was trained";
}

TEST(RopeScaling, LinearDividesAllPositions) {
  const RopeScaling s{.kind = Kind::linear, .factor = 4};
  for (const int64_t pair : {0, 3, 7})
    EXPECT_EQ(rope_frequency(10000, 16, pair, 9, s), rope_frequency(10000, 16, pair, 9, {}) / 4);
}

TEST(RopeScaling, AFactorThatIsNoneIsRefused) {
  RankContext ctx;
  const Tensor q = ctx.zeros({1, 3, 8}, DType::f32), k = ctx.zeros({1, 3, 8}, DType::f32);
  const auto complaint = [&](const RopeScaling& s) {
    return KILN_ERROR_OF(rope(ctx, q, k, {.heads = 2, .kv_heads = 2, .scaling = s}));
  };
  EXPECT_NE(complaint({.kind = Kind::linear, .factor = 0}).find("factor of its scaling is 0"),
            std::string::npos);
  EXPECT_NE(complaint({.kind = Kind::dynamic, .factor = 2}).find("trained to 0"), std::string::npos);
  EXPECT_NE(complaint({.kind = Kind::llama3, .factor = 2, .trained = 9, .slow_turns = 4, .quick_turns = 4})
                .find("the first must be more"),
            std::string::npos);
}

// What the gate looks at are single tokens: each at its own position, of a sequence as long as the whole.
TEST(RopeScaling, TheGateTakesTheModelsOwnFrequencies) {
  for (const RopeScaling& s : {RopeScaling{}, RopeScaling{.kind = Kind::dynamic, .factor = 2, .trained = 16},
                               RopeScaling{.kind = Kind::linear, .factor = 3}}) {
    StepSpec spec;
    spec.model = {.vocab = 64, .d_model = 32, .d_ff = 64, .layers = 1, .heads = 2, .kv_heads = 1};
    spec.model.rope_theta = 500000;
    spec.model.rope_scaling = s;
    spec.step.batch = 2;
    spec.step.context = 40;
    const RunVariants variants = choose_variants("optimized", "", DeviceType::cpu);
    variants.apply_to(spec.model);
    RankOptions rank;
    rank.variants = variants.ops;
    bool found = false;
    for (const StepCase& c : cases_of_step(spec, rank)) {
      if (!c.name.starts_with("rope ")) continue;
      found = true;
      RankContext ctx(rank);
      const SampledResult right =
          SampledReference(c.make(gate_sampling(Device::cpu(), 1)), c.dtype, 1, 1).check(ctx);
      EXPECT_TRUE(right.passed) << text_of(s) << ": " << right.reason;
    }
    EXPECT_TRUE(found);
  }
}

}  // namespace
}  // namespace kiln
