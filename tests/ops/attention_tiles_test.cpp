// The tiles attention may take: what the tables promise fits the GPU, what a rank has chosen is what it goes
// by, and a choice this build has no kernel for is refused. That every one of them is right:
// attention_widths_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "ops/attention/flash/flash_table.h"
#include "ops/attention/gpu_shared_memory.h"
#include "ops/attention/hopper/hopper_table.h"
#include "ops/attention/tile_choice.h"
#include "ops/cases/run_case.h"
#include "support/gpu.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

AttentionProblem problem(int64_t T, int64_t D, DType dtype = DType::bf16) {
  return {2, T, T, 4, 2, D, dtype, 0.125f, true};
}

AttentionChoices chosen(std::string_view variant, const AttentionProblem& p, const AttentionTiles& tiles) {
  AttentionChoices choices;
  const AttentionChoice one{shape_of(variant, p), tiles};
  choices.use({&one, 1});
  return choices;
}

TEST(AttentionTiles, OfHopperFitAMultiprocessor) {
  for (const hopper::ForwardTiles& t : hopper::kForwardTiles) {
    SCOPED_TRACE(cat(t.width, ": ", t.queries(), " x ", t.keys));
    EXPECT_LE(t.bytes(), std::size_t{227} * 1024);
    EXPECT_GE(t.bytes(), static_cast<std::size_t>(t.width * 2 * (2 * t.queries() + 2 * t.stages * t.keys)));
    EXPECT_LE(t.groups * 128 * t.consumer_registers(), 65536);
    EXPECT_EQ(std::count(std::begin(hopper::kForwardTiles), std::end(hopper::kForwardTiles), t), 1);
  }
}

TEST(AttentionTiles, ADefaultIsAmongTheCandidatesAndComesFirst) {
  for (const char* variant : {"flash_hopper", "flash_hopper_atomic", "flash"}) {
    for (int64_t D : {8, 64, 72, 80, 96, 128}) {
      for (int64_t T : {1, 512, 2048, 16384}) {
        SCOPED_TRACE(cat(variant, " ", T, " x ", D));
        const AttentionProblem p = problem(T, D);
        const auto candidates = tile_candidates(variant, p);
        ASSERT_GE(candidates.size(), 2u);
        EXPECT_TRUE(candidates.front().is_default);
        EXPECT_EQ(candidates.front().tiles, chosen_tiles({}, variant, p));
        for (std::size_t i = 1; i < candidates.size(); ++i) {
          EXPECT_FALSE(candidates[i].is_default);
          EXPECT_LE(candidates[i].shared_bytes, static_cast<std::size_t>(shared_kib(90)) * 1024);
        }
      }
    }
  }
}

TEST(AttentionTiles, DefaultsAreThoseThatWereMeasured) {
  const auto with_heads = [](int64_t heads, int64_t T) {
    AttentionProblem p = problem(T, 64);
    p.H = p.Hkv = heads;
    return chosen_tiles({}, "flash_hopper", p);
  };
  EXPECT_EQ(with_heads(40, 512), (AttentionTiles{64, 128, 2}));  // little to do
  EXPECT_EQ(with_heads(40, 2047), (AttentionTiles{128, 128, 2}));
  EXPECT_EQ(with_heads(40, 2048), (AttentionTiles{192, 128, 2}));
  EXPECT_EQ(chosen_tiles({}, "flash_hopper", problem(4096, 128)), (AttentionTiles{128, 128, 2}));
  EXPECT_EQ(chosen_tiles({}, "flash", problem(512, 64)).queries, 64);     // 32 blocks of 128
  EXPECT_EQ(chosen_tiles({}, "flash", problem(16384, 64)).queries, 128);  // 1024
}

TEST(AttentionTiles, WhereThereIsOneShapeThereIsNothingToChoose) {
  EXPECT_TRUE(tile_candidates("flash", problem(512, 256)).empty());
  EXPECT_TRUE(tile_candidates("flash_hopper", problem(512, 136)).empty());
  EXPECT_TRUE(tile_candidates("flash_hopper", problem(512, 64, DType::f32)).empty());
  EXPECT_TRUE(tile_candidates("naive", problem(512, 64)).empty());
}

TEST(AttentionTiles, AChoiceHoldsForItsShapeAlone) {
  const AttentionProblem p = problem(512, 64);
  const AttentionTiles other{128, 64, 2}, usual{64, 128, 2};
  const AttentionChoices choices = chosen("flash_hopper", p, other);
  EXPECT_EQ(chosen_tiles(choices, "flash_hopper", p), other);
  EXPECT_EQ(chosen_tiles(choices, "flash_hopper_atomic", p), other);  // the same forward
  EXPECT_EQ(chosen_tiles(choices, "flash", p), chosen_tiles({}, "flash", p));
  const auto changed = [&](auto change) {
    AttentionProblem q = p;
    change(q);
    return chosen_tiles(choices, "flash_hopper", q);
  };
  EXPECT_EQ(changed([](AttentionProblem& q) { q.B = 3; }), usual);
  EXPECT_EQ(changed([](AttentionProblem& q) { q.H = 8; }), usual);
  EXPECT_EQ(changed([](AttentionProblem& q) { q.Hkv = 4; }), usual);
  EXPECT_EQ(changed([](AttentionProblem& q) { q.Tq = 511; }), usual);
  EXPECT_EQ(changed([](AttentionProblem& q) { q.Tk = 513; }), usual);
  EXPECT_EQ(changed([](AttentionProblem& q) { q.D = 56; }), usual);
  EXPECT_EQ(changed([](AttentionProblem& q) { q.causal = false; }), usual);
  EXPECT_EQ(changed([](AttentionProblem& q) { q.dtype = DType::f16; }), usual);
  EXPECT_EQ(changed([](AttentionProblem& q) { q.scale = 2; }), other);  // the tiles do not see it
}

TEST(AttentionTiles, TilesThatThisBuildHasNotAreRefused) {
  const AttentionProblem p = problem(512, 64);
  const AttentionTiles none{128, 80, 2};
  const std::string said = KILN_ERROR_OF(chosen_tiles(chosen("flash_hopper", p, none), "flash_hopper", p));
  EXPECT_NE(said.find("128 x 80, 2 stages"), std::string::npos) << said;
  EXPECT_NE(said.find("2 x 4/2 heads x 512/512 x 64 causal bf16"), std::string::npos) << said;
  const AttentionChoice good{shape_of("flash", p), {64, 64, 2}}, bad{shape_of("flash_hopper", p), none},
      unknown{shape_of("naive", p), {64, 64, 2}};
  EXPECT_EQ(why_no_such_tiles({&good, 1}), "");
  EXPECT_NE(why_no_such_tiles({&unknown, 1}), "");
  const AttentionChoice both[] = {good, bad};
  EXPECT_NE(why_no_such_tiles(both).find("flash_hopper"), std::string::npos);
}

class CudaAttentionTiles : public testing::Test {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }

  static OpCase long_rows() {
    using K = CaseInput::Kind;
    return {"attention",
            "long rows",
            {{"q", K::activation, {2, 600, 4 * 64}},
             {"k", K::activation, {2, 600, 2 * 64}},
             {"v", K::activation, {2, 600, 2 * 64}}},
            [](RankContext& ctx, std::span<const CaseArgument> in) {
              AttentionOptions o;
              o.heads = 4;
              o.kv_heads = 2;
              return attention(ctx, in[0].tensor, in[1].tensor, in[2].tensor, o);
            }};
  }

  static std::vector<double> output(const std::string& variant, const AttentionChoices& choices) {
    RankOptions o;
    o.device = Device::cuda();
    o.variants.set("attention", variant);
    o.attention_choices = choices;
    RankContext ctx(o);
    const OpCase c = long_rows();
    return run_case(ctx, c, draw_case(c, DType::bf16, 5), DType::bf16).y;
  }
};

// Tiles with other keys reach the maximum in other steps, which shows in some of 300,000 last bits.
TEST_F(CudaAttentionTiles, WhatIsChosenRuns) {
  const AttentionProblem p = problem(600, 64);
  RankOptions o;
  o.device = Device::cuda();
  const DeviceTraits traits = RankContext(o).traits();
  for (const auto& row : AttentionOp::rows()) {
    if (row.device != DeviceType::cuda || std::string_view(row.name) != "flash_hopper") continue;
    if (const std::string why = row.unsupported(p, traits); !why.empty()) GTEST_SKIP() << why;
  }
  const std::vector<double> usual = output("flash_hopper", {});
  const AttentionChoices narrow = chosen("flash_hopper", p, {128, 64, 2});
  const std::vector<double> other = output("flash_hopper", narrow);
  EXPECT_NE(usual, other);
  EXPECT_EQ(other, output("flash_hopper", narrow));
  EXPECT_EQ(usual, output("flash_hopper", chosen("flash_hopper", problem(601, 64), {128, 64, 2})));
  EXPECT_THROW((void)output("flash_hopper", chosen("flash_hopper", p, {128, 80, 2})), Error);
}

TEST_F(CudaAttentionTiles, AChoiceWithoutAKernelIsRefusedByFlashToo) {
  const AttentionProblem p = problem(600, 64);
  EXPECT_THROW((void)output("flash", chosen("flash", p, {32, 64, 2})), Error);
}

}  // namespace
}  // namespace kiln
