// Where flash_hopper yields to flash, pass by pass. That both names are said: pass_selection_test.cpp; here,
// when, and that on a GPU the bits are those of the variants taken.
#include <gtest/gtest.h>

#include "ops/attention/row_choice.h"
#include "ops/attention_case.h"
#include "ops/cases/run_case.h"
#include "support/gpu.h"

namespace kiln {
namespace {

AttentionProblem problem(int64_t Tq, int64_t Tk, int64_t heads = 1, int64_t D = 64, bool causal = true) {
  return {1, Tq, Tk, heads, heads, D, DType::bf16, 0.125f, causal};
}

const Variant<AttentionOp>& row_of(std::string_view name) {
  for (const auto& row : AttentionOp::rows()) {
    if (row.device == DeviceType::cuda && row.name == name) return row;
  }
  throw Error("no such variant");
}

// As measured: docs/results/h200.md.
TEST(AttentionRowChoice, CutsKeysInPartsWhereBlocksAreFewAndKeysMany) {
  for (int64_t T : {1024, 2048, 4096, 8192, 16384})
    EXPECT_TRUE(split_kv_beats_hopper(problem(T, T, 1, 32))) << T;
  for (int64_t T : {2048, 4096, 8192}) {
    EXPECT_TRUE(split_kv_beats_hopper(problem(T, T, 1, 64))) << T;
    EXPECT_TRUE(split_kv_beats_hopper(problem(T, T, 1, 128))) << T;
  }
  for (int64_t D : {32, 64, 128}) {
    EXPECT_FALSE(split_kv_beats_hopper(problem(256, 256, 1, D)));
    EXPECT_FALSE(split_kv_beats_hopper(problem(32768, 32768, 1, D)));
    EXPECT_FALSE(split_kv_beats_hopper(problem(1024, 1024, 16, D)));
    EXPECT_TRUE(split_kv_beats_hopper(problem(1, 8192, 1, D)));
  }
}

TEST(AttentionRowChoice, TakesFlashsBackwardWhereTilesAreFew) {
  EXPECT_TRUE(flash_backward_beats_hopper(problem(128, 128, 1, 16)));
  EXPECT_TRUE(flash_backward_beats_hopper(problem(512, 512, 1, 32)));
  EXPECT_TRUE(flash_backward_beats_hopper(problem(256, 256, 1, 128)));
  EXPECT_FALSE(flash_backward_beats_hopper(problem(128, 128, 1, 128)));
  EXPECT_FALSE(flash_backward_beats_hopper(problem(512, 512, 1, 64)));
  EXPECT_FALSE(flash_backward_beats_hopper(problem(256, 256, 48, 64)));
}

TEST(AttentionRowChoice, FlashHopperAloneYieldsAndRunsWhereItDoesSo) {
  const DeviceTraits h200{.compute_capability = 90};
  for (const auto& row : AttentionOp::rows())
    EXPECT_EQ(row.yields != nullptr, std::string_view(row.name) == "flash_hopper") << row.name;
  for (const AttentionProblem& p : {problem(4096, 4096), problem(200, 200)})
    EXPECT_EQ(row_of("flash_hopper").unsupported(p, h200), "");
}

class CudaAttentionRowChoice : public testing::TestWithParam<AttentionDims> {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }
};

TEST_P(CudaAttentionRowChoice, GivesTheBitsOfTheVariantsItTakes) {
  const AttentionDims d = GetParam();
  const AttentionProblem p = problem_of(d, DType::bf16);
  const OpCase c = attention_case(d);
  const CaseData data = draw_case(c, DType::bf16, 3);
  RankOptions options;
  options.device = Device::cuda();
  const auto run = [&](const char* variant) {
    RankOptions named = options;
    if (variant != nullptr) named.variants.set("attention", variant);
    RankContext ctx(named);
    return run_case(ctx, c, data, DType::bf16);
  };
  if (const std::string why = row_of("flash_hopper").unsupported(p, RankContext(options).traits());
      !why.empty())
    GTEST_SKIP() << why;
  const CaseResult chosen = run(nullptr);
  EXPECT_EQ(chosen.y, run(split_kv_beats_hopper(p) ? "flash" : "flash_hopper").y);
  // Where the passes go to different kernels, they still agree on what lies between them.
  const CaseResult whole = run(flash_backward_beats_hopper(p) ? "flash" : "flash_hopper");
  ASSERT_EQ(chosen.grads.size(), whole.grads.size());
  for (std::size_t i = 0; i < chosen.grads.size(); ++i)
    EXPECT_LT(relative_error(chosen.grads[i], whole.grads[i]), 0.01) << "gradient " << i;
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaAttentionRowChoice,
                         testing::Values(AttentionDims{1, 2049, 2049, 1, 1, 64},
                                         AttentionDims{1, 1, 5000, 4, 2, 128, false},
                                         AttentionDims{1, 1030, 1030, 1, 1, 32},
                                         AttentionDims{2, 200, 200, 4, 2, 64},
                                         AttentionDims{1, 130, 256, 3, 1, 80, false}));

}  // namespace
}  // namespace kiln
