// --recompute by name; that no setting changes a bit; and what each keeps.
#include "model/recompute.h"

#include <gtest/gtest.h>

#include "train/presets.h"
#include "train/seams.h"

namespace kiln {
namespace {

TEST(Recompute, NamesGoBothWays) {
  for (const Recompute& r :
       {Recompute::none, Recompute::block, Recompute::nested, Recompute::every(2), Recompute::every(1048576)})
    EXPECT_EQ(parse_recompute("--recompute", name_of(r)), r);
  const PieceSet norms{Piece::attention_norm, Piece::mlp_norm};
  for (const char* text :
       {"plan:norms+swiglu*12,none*4", "plan:all", "plan:none", "plan:attention_norm*1,mlp_norm*1,all",
        "plan:qkv+attention+out+gate_up*3", "budget:24GiB", "budget:1000B"}) {
    const Recompute r = parse_recompute("--recompute", text);
    EXPECT_EQ(parse_recompute("--recompute", name_of(r)), r) << text;
  }
  EXPECT_EQ(name_of(parse_recompute("--recompute", "plan:swiglu+mlp_norm+attention_norm*2,norms+swiglu*3")),
            "plan:norms+swiglu*5");
  EXPECT_EQ(name_of(Recompute::plan({{norms, 2}, {{}, 0}, {norms, 1}})), "plan:norms*3");
  EXPECT_EQ(name_of(Recompute::within(3 << 20)), "budget:3MiB");
  EXPECT_EQ(parse_recompute("--recompute", "budget:800MiB").budget, int64_t{800} << 20);
  EXPECT_EQ(parse_recompute("--recompute", "every:1"), Recompute::block);
  EXPECT_EQ(parse_recompute("--recompute", "every:12").k, 12);
}

TEST(Recompute, WhatIsNoNumberOfBlocksIsRefusedInOneLine) {
  auto said = [](std::string_view text) {
    try {
      (void)parse_recompute("--recompute", text);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::usage);
      return std::string(e.what()) + " | " + e.hint();
    }
    return std::string("nothing");
  };
  for (const char* text : {"every:0", "every:x", "every:", "every:-1", "every:2.5", "every:2 ", "every: 2",
                           "every:99999999999999999999", "every:1048577"}) {
    EXPECT_EQ(said(text).find(cat("--recompute is '", text, "'; expected every:k with k from 1 to")), 0u)
        << said(text);
  }
  EXPECT_NE(said("blocks").find("did you mean 'block'?"), std::string::npos);
  EXPECT_NE(said("every").find("every:k"), std::string::npos);
  EXPECT_NE(said("").find("expected one of: none, block, every:k, nested"), std::string::npos);
  EXPECT_NE(said("plan:norm+swiglu").find("names the piece 'norm'"), std::string::npos);
  EXPECT_NE(said("plan:norm+swiglu").find("did you mean 'norms'?"), std::string::npos);
  EXPECT_NE(said("plan:swiglo").find("did you mean 'swiglu'?"), std::string::npos);
  EXPECT_NE(said("plan:").find("names the piece ''"), std::string::npos);
  EXPECT_NE(said("plan:norms*0").find("from 1 to"), std::string::npos);
  EXPECT_NE(said("plan:norms,none*2").find("only its last run"), std::string::npos);
  EXPECT_NE(said("plan:norms*2,").find("names the piece ''"), std::string::npos);
  EXPECT_NE(said("plam:norms").find("did you mean 'plan:PIECES'?"), std::string::npos);
  for (const char* text : {"budget:", "budget:0", "budget:lots", "budget:-1GiB", "budget:1.5GiB"})
    EXPECT_NE(said(text).find(cat("--recompute is '", text, "'; expected budget:SIZE")), std::string::npos)
        << said(text);
  ModelConfig c;
  c.recompute = Recompute::every(0);
  EXPECT_THROW(check_config(c), Error);
  c.layers = 3;
  for (const char* text : {"plan:norms*2", "plan:norms*4", "plan:norms*4,none"}) {
    c.recompute = parse_recompute("--recompute", text);
    EXPECT_THROW(check_config(c), Error) << text;
  }
  for (const char* text : {"plan:norms*3", "plan:norms*2,none", "plan:norms"}) {
    c.recompute = parse_recompute("--recompute", text);
    EXPECT_NO_THROW(check_config(c)) << text;
  }
  c.recompute = Recompute::within(1 << 30);
  EXPECT_THROW(Llama{c}, Error);  // somebody forgot to choose
}

TEST(Recompute, SpansOfAnyLengthEndInTheSameBits) {
  for (Precision precision : {Precision::fp32, Precision::bf16, Precision::autocast}) {
    TinyRun run;
    run.precision = precision;
    run.model.layers = 5;
    run.steps = 2;
    const TinyResult plain = train_tiny(on(Device::cpu()), run);
    for (int64_t k : {1, 2, 3, 5, 7}) {
      run.model.recompute = Recompute::every(k);
      EXPECT_TRUE(same_bits(train_tiny(on(Device::cpu()), run), plain)) << k << " " << name_of(precision);
    }
  }
}

TEST(Recompute, PlansEndInTheSameBits) {
  for (const char* preset : {"optimized", "baseline"}) {
    for (Precision precision : {Precision::fp32, Precision::bf16, Precision::autocast}) {
      TinyRun run;
      run.precision = precision;
      run.model.layers = 3;
      run.steps = 2;
      RankOptions rank = on(Device::cpu());
      const RunVariants chosen = choose_variants(preset, "", DeviceType::cpu);
      chosen.apply_to(run.model);
      rank.variants = chosen.ops;
      const TinyResult plain = train_tiny(rank, run);
      std::vector<std::string> plans = {"norms+swiglu",
                                        "all",
                                        "qkv+gate_up",
                                        "attention_norm+qkv+attention",
                                        "out+mlp_norm+gate_up+swiglu",
                                        "all*1,norms*1,none*1"};
      for (const std::string_view piece : kPieceNames) plans.emplace_back(piece);
      for (const std::string& plan : plans) {
        run.model.recompute = parse_recompute("--recompute", "plan:" + plan);
        const TinyResult result = train_tiny(rank, run);
        EXPECT_TRUE(same_bits(result, plain)) << plan << " " << name_of(precision) << " " << preset;
        EXPECT_LE(result.memory.peak[Tag::activation], plain.memory.peak[Tag::activation]) << plan << preset;
      }
    }
  }
}

// Where the norm after a sum is one op, made again it is another: their variants must go together.
TEST(Recompute, ANormIsMadeAgainByTheVariantItHad) {
  for (const char* variant : {"naive", "fused", "composed"}) {
    for (Precision precision : {Precision::fp32, Precision::bf16}) {
      TinyRun run;
      run.precision = precision;
      run.steps = 2;
      RankOptions rank = on(Device::cpu());
      rank.variants.set("add_rms_norm", variant);
      const TinyResult plain = train_tiny(rank, run);
      run.model.recompute = parse_recompute("--recompute", "plan:norms");
      EXPECT_TRUE(same_bits(train_tiny(rank, run), plain)) << variant << name_of(precision);
    }
  }
}

TEST(Recompute, EachPieceOfALongStackFreesItsMemory) {
  TinyRun run;
  run.model.layers = 24;
  run.steps = 1;
  const auto activations = [&](const std::string& text) {
    run.model.recompute = parse_recompute("--recompute", text);
    return train_tiny(on(Device::meta()), run).memory.peak[Tag::activation];
  };
  const std::size_t none = activations("none");
  for (const std::string_view piece : kPieceNames)
    EXPECT_LT(activations(cat("plan:", piece)), none - none / 50) << piece;
  // All but the block's last matmul is made again; the input and statistics are all that is kept.
  EXPECT_LT(activations("plan:all"), none / 3);
  EXPECT_LT(activations("plan:all*12,none"), none);
}

// L / k inputs are kept, and the activations of k blocks exist while a span runs again: with long stacks the
// sum falls first and then rises.
TEST(Recompute, MemoryFallsAndThenRisesWithTheLengthOfASpan) {
  TinyRun run;
  run.model.layers = 96;
  run.steps = 1;
  auto activations = [&](const Recompute& r) {
    run.model.recompute = r;
    return train_tiny(on(Device::meta()), run).memory.peak[Tag::activation];
  };
  const std::size_t block = activations(Recompute::block), two = activations(Recompute::every(2)),
                    eight = activations(Recompute::every(8)), half = activations(Recompute::every(48)),
                    whole = activations(Recompute::every(96)), none = activations(Recompute::none);
  EXPECT_LT(two, block);
  EXPECT_LT(two, eight);
  EXPECT_LT(eight, half);
  EXPECT_LT(half, whole);
  EXPECT_LT(half, none);
  EXPECT_LT(block, none / 5);
  EXPECT_LT(activations(Recompute::nested), two);
}

}  // namespace
}  // namespace kiln
