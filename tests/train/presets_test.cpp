#include "train/presets.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "ops/op_list.h"
#include "train/seams.h"

namespace kiln {
namespace {

TEST(Presets, BaselineTakesNothingFused) {
  const RunVariants r = choose_variants("baseline", "");
  EXPECT_FALSE(r.fused_qkv);
  EXPECT_FALSE(r.fused_gate_up);
  for (const char* op : {"attention", "rms_norm", "add_rms_norm", "swiglu", "linear_cross_entropy"})
    EXPECT_EQ(r.ops.find(op), "composed") << op;
  for (const char* op : {"add", "adamw", "cast", "cross_entropy", "masked_softmax", "mul", "rope", "silu"})
    EXPECT_EQ(r.ops.find(op), "naive") << op;
  for (const char* op : {"linear", "batched_matmul"}) EXPECT_EQ(r.ops.find(op), "") << op;
  for (const auto& [op, variant] : r.ops.all())
    EXPECT_TRUE(variant == "composed" || variant == "naive") << op << " " << variant;
}

// On a GPU the baseline is the same choice of rows; matmuls run on cuBLASLt there.
TEST(Presets, BaselineMeansTheSameOnCuda) {
  const RunVariants cpu = choose_variants("baseline", "", DeviceType::cpu),
                    cuda = choose_variants("baseline", "", DeviceType::cuda);
  EXPECT_EQ(cpu.fused_qkv, cuda.fused_qkv);
  EXPECT_EQ(cpu.fused_gate_up, cuda.fused_gate_up);
  for (const OpListing& op : list_ops()) EXPECT_EQ(cpu.ops.find(op.name), cuda.ops.find(op.name)) << op.name;
}

TEST(Presets, OptimizedIsTheTablesOrder) {
  const RunVariants r = choose_variants("optimized", "");
  EXPECT_TRUE(r.ops.all().empty());
  EXPECT_TRUE(r.fused_qkv && r.fused_gate_up);
}

TEST(Presets, SingleChoicesGoOnTop) {
  const RunVariants r = choose_variants("baseline", "qkv=fused,attention=flash,linear=naive");
  EXPECT_TRUE(r.fused_qkv);
  EXPECT_FALSE(r.fused_gate_up);
  EXPECT_EQ(r.ops.find("attention"), "flash");
  EXPECT_EQ(r.ops.find("linear"), "naive");
  EXPECT_EQ(r.ops.find("rms_norm"), "composed");
  EXPECT_EQ(r.ops.find("qkv"), "");
  ModelConfig c;
  choose_variants("optimized", "gate_up=split").apply_to(c);
  EXPECT_TRUE(c.fused_qkv);
  EXPECT_FALSE(c.fused_gate_up);
}

TEST(Presets, EveryOpCanBeNamed) {
  for (const OpListing& op : list_ops()) {
    for (const VariantListing& v : op.variants)
      EXPECT_EQ(choose_variants("optimized", cat(op.name, "=", v.name)).ops.find(op.name), v.name);
  }
}

TEST(Presets, UnknownNamesAreAnsweredWithTheNearest) {
  auto said = [](std::string_view preset, std::string_view variants) {
    try {
      (void)choose_variants(preset, variants);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::usage);
      return cat(e.what(), " | ", e.hint());
    }
    return std::string("nothing");
  };
  EXPECT_EQ(said("basline", ""),
            "--preset is 'basline'; expected one of: optimized, baseline | did you mean 'baseline'?");
  EXPECT_NE(said("", "").find("expected one of"), std::string::npos);
  EXPECT_NE(said("baseline", "gate_upp=split").find("did you mean 'gate_up'?"), std::string::npos);
  EXPECT_NE(said("baseline", "qkv=splitt").find("did you mean 'split'?"), std::string::npos);
  EXPECT_NE(said("optimized", "attention=flush").find("did you mean 'flash'?"), std::string::npos);
  EXPECT_NE(said("optimized", "qkv").find("is not an op and a variant"), std::string::npos);
}

TinyResult with_preset(const char* preset, Precision precision, std::set<std::string>* ran = nullptr) {
  class Names final : public OpObserver {
   public:
    explicit Names(std::set<std::string>& to) : to_(to) {}
    void on_op_begin(RankContext&, const OpEvent& e) override { to_.insert(cat(e.op, "=", e.variant)); }

   private:
    std::set<std::string>& to_;
  };
  const RunVariants v = choose_variants(preset, "");
  TinyRun run;
  run.precision = precision;
  run.model.layers = 2;
  run.steps = 10;
  v.apply_to(run.model);
  RankOptions o = on(Device::cpu());
  o.variants = v.ops;
  RankContext ctx(o);
  std::set<std::string> nowhere;
  Names names(ran != nullptr ? *ran : nowhere);
  ctx.add_observer(&names);
  Strategy plain;
  return train_tiny(ctx, run, plain);
}

// Three times what is seen: 3e-6 and 1e-5 in fp32, 1e-3 and 3e-3 where products are rounded to 16 bits, after
// one step and after ten.
TEST(Presets, BothTrainToNearlyTheSameLoss) {
  for (Precision precision : {Precision::fp32, Precision::bf16, Precision::autocast, Precision::fp16}) {
    const TinyResult slow = with_preset("baseline", precision), fast = with_preset("optimized", precision);
    const double close = precision == Precision::fp32 ? 1e-5 : 3e-3;
    EXPECT_NEAR(slow.losses.front(), fast.losses.front(), close) << name_of(precision);
    EXPECT_NEAR(slow.losses.back(), fast.losses.back(), 3 * close) << name_of(precision);
    EXPECT_LT(slow.losses.back(), slow.losses.front());
  }
}

TEST(Presets, WhatRunsIsWhatThePresetNames) {
  std::set<std::string> slow, fast;
  with_preset("baseline", Precision::autocast, &slow);
  with_preset("optimized", Precision::autocast, &fast);
  for (const char* name : {"mul_columns=naive", "batched_matmul=packed", "masked_softmax=naive", "silu=naive",
                           "linear=packed", "cross_entropy=naive", "adamw=naive", "cast=naive", "rope=naive"})
    EXPECT_EQ(slow.count(name), 1u) << name;
  for (const std::string& name : slow)
    EXPECT_TRUE(name.ends_with("=naive") || name.ends_with("=packed")) << name;
  for (const char* name : {"rms_norm=fused", "add_rms_norm=fused", "attention=flash", "swiglu=fused",
                           "linear_cross_entropy=fused", "adamw=fused", "cast=fused", "rope=fused"})
    EXPECT_EQ(fast.count(name), 1u) << name;
}

}  // namespace
}  // namespace kiln
