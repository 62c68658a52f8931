// Which switch turns what on, and that all combined are the optimized preset.
#include "studies/ablation/ablation_switches.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace kiln {
namespace {

AblationSetup setup_with(const std::vector<std::string_view>& on, const Device& device = Device::cpu()) {
  StepSpec shape;
  shape.model.layers = 2;
  shape.step.batch = 3;
  return ablation_setup(shape, on, device);
}

std::vector<std::string_view> all_switches() {
  std::vector<std::string_view> names;
  for (const AblationSwitch& s : ablation_switches()) names.push_back(s.name);
  return names;
}

// Ops whose choice differs from the baseline's.
std::vector<std::string> changed_ops(const AblationSetup& setup) {
  std::vector<std::string> ops;
  const RunVariants baseline = choose_variants("baseline", "");
  for (const auto& [op, variant] : baseline.ops.all()) {
    if (setup.variants.ops.find(op) != variant) ops.push_back(op);
  }
  return ops;
}

TEST(AblationSwitches, NoneIsTheBaseline) {
  const AblationSetup off = setup_with({});
  EXPECT_TRUE(changed_ops(off).empty());
  EXPECT_EQ(off.differences(), "dtype=fp32,graph=off,prefetch=off,recompute=none,qkv=split,gate_up=split");
  EXPECT_EQ(off.spec.model.layers, 2);
  EXPECT_EQ(off.spec.step.batch, 3);
  EXPECT_EQ(off.spec.step.prefetch, false);
  EXPECT_EQ(off.spec.mode, StepMode::full);
}

TEST(AblationSwitches, AllAreTheOptimizedPreset) {
  const AblationSetup on = setup_with(all_switches());
  EXPECT_EQ(on.differences(),
            "dtype=bf16,graph=on,prefetch=on,recompute=block,qkv=fused,gate_up=fused,compile=model");
  for (const auto& [op, variant] : on.variants.ops.all())
    EXPECT_EQ(variant, "") << op;  // as the table has it
  EXPECT_FALSE(on.spec.step.prefetch.has_value());
}

TEST(AblationSwitches, EachTurnsOnItsOwnAlone) {
  using Ops = std::vector<std::string>;
  EXPECT_EQ(changed_ops(setup_with({"fused_rope"})), Ops{"rope"});
  EXPECT_EQ(changed_ops(setup_with({"fused_adamw"})), Ops{"adamw"});
  EXPECT_EQ(changed_ops(setup_with({"fused_rmsnorm"})).size(), 2U);
  EXPECT_TRUE(changed_ops(setup_with({"bf16"})).empty());
  EXPECT_TRUE(setup_with({"flash_attention"}).spec.model.fused_qkv);
  EXPECT_FALSE(setup_with({"flash_attention"}).spec.model.fused_gate_up);
  const std::string off = setup_with({}).differences();
  std::size_t ops = 0;
  for (const std::string_view name : all_switches()) {
    if (name == kRankSwitch) continue;  // of several ranks, each of which runs the same step
    const AblationSetup one = setup_with({name});
    const std::size_t changed = changed_ops(one).size();
    EXPECT_TRUE(changed > 0 || one.differences() != off) << name;
    ops += changed;
  }
  EXPECT_EQ(ops, changed_ops(setup_with(all_switches())).size()) << "an op belongs to one switch";
}

TEST(AblationSwitches, GraphsNeedADeviceThatCapturesThem) {
  const AblationSwitch& graph = find_ablation_switch("--only", "cuda_graph");
  EXPECT_NE(why_not_on(graph, Device::cpu()).find("cpu cannot capture"), std::string::npos);
  EXPECT_EQ(why_not_on(graph, Device::cuda()), "");
  EXPECT_EQ(why_not_on(find_ablation_switch("--only", "bf16"), Device::cpu()), "");
}

TEST(AblationSwitches, AnUnknownNameGetsTheNearest) {
  try {
    (void)find_ablation_switch("--only", "fused_rop");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "--only has 'fused_rop', which is no switch");
    EXPECT_NE(e.hint().find("did you mean 'fused_rope'?"), std::string::npos);
    EXPECT_EQ(e.kind(), ErrorKind::usage);
  }
}

}  // namespace
}  // namespace kiln
