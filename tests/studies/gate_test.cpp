// The gate in front of a step's times: correct steps pass in every precision, preset and mode; what it found
// is not looked for twice; and a cache that is not its own is not believed.
#include "studies/gate/gate.h"

#include <gtest/gtest.h>

#include "studies/step/step.h"
#include "support/temp_folder.h"
#include "train/presets.h"

namespace kiln {
namespace {

StepSpec small_spec() {
  StepSpec spec;
  spec.model = {.vocab = 300, .d_model = 64, .d_ff = 176, .layers = 3, .heads = 4, .kv_heads = 2};
  spec.step.batch = 2;
  spec.step.context = 40;
  return spec;
}

GatedStep step_of(StepSpec spec, const std::string& preset) {
  GatedStep step;
  const RunVariants chosen = choose_variants(preset, "", DeviceType::cpu);
  chosen.apply_to(spec.model);
  step.rank.threads = 2;
  step.rank.variants = chosen.ops;
  step.planned = plan_step(spec, step.rank).ops;
  step.spec = spec;
  return step;
}

void say_nothing(const std::string&) {}

TEST(StepGate, CorrectStepsPass) {
  for (const char* preset : {"optimized", "baseline"}) {
    for (const Precision precision :
         {Precision::fp32, Precision::bf16, Precision::autocast, Precision::pure_bf16, Precision::fp16}) {
      for (const StepMode mode : {StepMode::forward, StepMode::forward_backward, StepMode::full}) {
        StepSpec spec = small_spec();
        spec.precision = precision;
        spec.mode = mode;
        spec.step.micro_steps = mode == StepMode::full ? 2 : 1;
        spec.step.max_norm = mode == StepMode::full ? 0.5 : 0;
        spec.model.recompute = mode == StepMode::full ? Recompute::block : Recompute::none;
        const GateReport r = StepGate("", say_nothing).check(step_of(spec, preset));
        EXPECT_EQ(r.gate, Gate::passed)
            << preset << " " << name_of(precision) << " " << name_of(mode) << ": " << r.reason;
        EXPECT_GT(r.checks, 10);
        EXPECT_EQ(r.cached, 0);
        EXPECT_LE(r.worst.error, r.worst.allowed);
      }
    }
  }
}

TEST(StepGate, AnOpThatNoCaseStandsForMakesTheStepNotVerified) {
  GatedStep step = step_of(small_spec(), "optimized");
  step.planned.push_back({.op = "softmax", .variant = "fused", .cost = {1, 2}});
  const GateReport r = StepGate("", say_nothing).check(step);
  EXPECT_EQ(r.gate, Gate::not_verified);
  EXPECT_NE(r.reason.find("softmax fused forward"), std::string::npos) << r.reason;
}

TEST(StepGate, WhatPassedIsNotCheckedAgain) {
  const TempFolder folder;
  const GatedStep step = step_of(small_spec(), "optimized");
  StepGate first(folder.path(), say_nothing);
  const GateReport once = first.check(step);
  EXPECT_EQ(once.cached, 0);
  EXPECT_EQ(first.check(step).cached, once.checks);  // by this process
  const GateReport later = StepGate(folder.path(), [](const std::string& text) {
                             ADD_FAILURE() << "nothing was to be done, but: " << text;
                           }).check(step);  // by another one
  EXPECT_EQ(later.gate, Gate::passed);
  EXPECT_EQ(later.cached, once.checks);
  StepSpec longer = small_spec();
  longer.step.context = 41;
  const GateReport other = StepGate(folder.path(), say_nothing).check(step_of(longer, "optimized"));
  EXPECT_LT(other.cached, other.checks);
}

TEST(StepGate, ACacheOfAnotherProgramOrABrokenOneIsMadeAnew) {
  const TempFolder folder;
  const std::string file = "gate-cache.json";
  const GatedStep step = step_of(small_spec(), "optimized");
  StepGate(folder.path(), say_nothing).check(step);
  const std::string good = folder.read(file);
  ASSERT_NE(good.find(program_fingerprint()), std::string::npos);
  std::string foreign = good;
  foreign.replace(foreign.find(program_fingerprint()), program_fingerprint().size(), "another build");
  for (const std::string& text : {foreign, good.substr(0, good.size() / 2), std::string(),
                                  std::string("[1, 2]"), std::string("{\"schema\": 3, \"passed\": 7}")}) {
    folder.write(file, text);
    const GateReport r = StepGate(folder.path(), say_nothing).check(step);
    EXPECT_EQ(r.cached, 0) << text.substr(0, 40);
    EXPECT_EQ(r.gate, Gate::passed);
    EXPECT_EQ(folder.read(file), good) << "the file was not written again";
  }
}

TEST(StepGate, WhatIsStoredAsTooFarOffIsNoPass) {
  const TempFolder folder;
  GateCache cache(folder.path());
  cache.keep("a", {"y", 1, 2});
  cache.keep("b", {"y", 3, 2});
  cache.save();
  const GateCache again(folder.path());
  EXPECT_NE(again.find("a"), nullptr);
  EXPECT_EQ(again.find("b"), nullptr);
}

}  // namespace
}  // namespace kiln
