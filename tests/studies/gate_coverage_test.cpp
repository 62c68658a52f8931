// Every op that a step runs has a case that checks it at its shape: in each preset, precision and mode, with
// and without recomputing, accumulating and clipping.
#include <gtest/gtest.h>

#include "optim/optimizers.h"
#include "studies/gate/step_cases.h"
#include "studies/gate/update_cases.h"
#include "studies/step/step.h"
#include "train/presets.h"

namespace kiln {
namespace {

StepSpec small_spec() {
  StepSpec spec;
  spec.model = {.vocab = 320, .d_model = 64, .d_ff = 160, .layers = 3, .heads = 4, .kv_heads = 2};
  spec.step.batch = 2;
  spec.step.context = 48;
  return spec;
}

RankOptions rank_on(DeviceType device, const RunVariants& variants) {
  RankOptions o;
  o.device = Device::meta(device);
  o.variants = variants.ops;
  return o;
}

// What is not covered, as one text.
std::string missing(StepSpec spec, DeviceType device, const std::string& preset,
                    const std::string& variants) {
  const RunVariants chosen = choose_variants(preset, variants, device);
  chosen.apply_to(spec.model);
  const RankOptions rank = rank_on(device, chosen);
  std::string all;
  for (const std::string& op : uncovered_ops(plan_step(spec, rank).ops, cases_of_step(spec, rank), rank))
    all += op + "; ";
  return all;
}

constexpr Precision kPrecisions[] = {Precision::fp32, Precision::bf16, Precision::autocast,
                                     Precision::pure_bf16, Precision::fp16};

TEST(GateCoverage, EveryOpOfEveryPresetPrecisionAndMode) {
  for (const DeviceType device : {DeviceType::cpu, DeviceType::cuda}) {
    for (const char* preset : {"optimized", "baseline"}) {
      for (const Precision precision : kPrecisions) {
        for (const StepMode mode : {StepMode::forward, StepMode::forward_backward, StepMode::full}) {
          StepSpec spec = small_spec();
          spec.precision = precision;
          spec.mode = mode;
          EXPECT_EQ(missing(spec, device, preset, ""), "")
              << name_of(device) << " " << preset << " " << name_of(precision) << " " << name_of(mode);
        }
      }
    }
  }
}

TEST(GateCoverage, StepsThatAccumulateClipRecomputeOrTieWeights) {
  for (const DeviceType device : {DeviceType::cpu, DeviceType::cuda}) {
    for (const Precision precision : kPrecisions) {
      StepSpec spec = small_spec();
      spec.precision = precision;
      spec.step.micro_steps = 3;
      spec.step.max_norm = 1;
      spec.model.recompute = Recompute::block;
      EXPECT_EQ(missing(spec, device, "optimized", ""), "") << name_of(device) << " " << name_of(precision);
      spec.model.recompute = Recompute::nested;
      spec.model.tied = true;
      EXPECT_EQ(missing(spec, device, "baseline", ""), "") << name_of(device) << " " << name_of(precision);
      spec.model.fused_linear_ce = false;
      EXPECT_EQ(missing(spec, device, "optimized", "qkv=split,gate_up=split"), "")
          << name_of(device) << " " << name_of(precision);
      spec.step.optimizer.name = "sgd";
      EXPECT_EQ(missing(spec, device, "optimized", ""), "")
          << name_of(device) << " sgd " << name_of(precision);
    }
  }
}

// A shape that no case has: this is what makes the tests above able to fail.
TEST(GateCoverage, EveryOptimizerHasADefinitionOfItsUpdate) {
  for (const std::string_view name : optimizer_names()) {
    EXPECT_NO_THROW(check_update_has_a_case(name)) << name;
    StepSpec spec = small_spec();
    spec.step.optimizer.name = name;
    const std::vector<StepCase> cases = cases_of_step(spec, rank_on(DeviceType::cpu, {}));
    EXPECT_TRUE(std::any_of(cases.begin(), cases.end(), [&](const StepCase& c) {
      return c.name.starts_with(name);
    })) << name;
  }
  EXPECT_THROW(check_update_has_a_case("shampoo"), Error) << "and is not taken for another";
}

TEST(GateCoverage, AnOpWithoutACaseOfItsShapeIsNamed) {
  StepSpec spec = small_spec();
  const RunVariants chosen = choose_variants("optimized", "", DeviceType::cpu);
  const RankOptions rank = rank_on(DeviceType::cpu, chosen);
  const std::vector<TimedOp> planned = plan_step(spec, rank).ops;
  std::vector<StepCase> cases = cases_of_step(spec, rank);
  std::erase_if(cases, [](const StepCase& c) { return c.name.rfind("swiglu", 0) == 0; });
  EXPECT_EQ(uncovered_ops(planned, cases, rank),
            (std::vector<std::string>{"swiglu fused forward", "swiglu fused backward"}));
  spec.step.context = 49;
  EXPECT_FALSE(uncovered_ops(planned, cases_of_step(spec, rank), rank).empty());
}

}  // namespace
}  // namespace kiln
