// flash_few_rows: which kernels take which problem, with the workspace they ask for. That the results are
// right: op_cases_test.cpp, as of every variant; here, that they are those of the kernels it goes to.
#include <gtest/gtest.h>

#include "ops/cases/run_case.h"
#include "ops/attention/row_choice.h"
#include "ops/attention_case.h"
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
TEST(AttentionFewRows, CutsKeysInPartsWhereBlocksAreFewAndKeysMany) {
  for (int64_t T : {1024, 2048, 4096, 8192, 16384}) EXPECT_TRUE(parts_beat_hopper(problem(T, T, 1, 32))) << T;
  for (int64_t T : {2048, 4096, 8192}) {
    EXPECT_TRUE(parts_beat_hopper(problem(T, T, 1, 64))) << T;
    EXPECT_TRUE(parts_beat_hopper(problem(T, T, 1, 128))) << T;
  }
  for (int64_t D : {32, 64, 128}) {
    EXPECT_FALSE(parts_beat_hopper(problem(256, 256, 1, D)));
    EXPECT_FALSE(parts_beat_hopper(problem(32768, 32768, 1, D)));
    EXPECT_FALSE(parts_beat_hopper(problem(1024, 1024, 16, D)));
    EXPECT_TRUE(parts_beat_hopper(problem(1, 8192, 1, D)));
  }
}

TEST(AttentionFewRows, TakesFlashsBackwardWhereTilesAreFew) {
  EXPECT_TRUE(flash_backward_beats_hopper(problem(128, 128, 1, 16)));
  EXPECT_TRUE(flash_backward_beats_hopper(problem(512, 512, 1, 32)));
  EXPECT_TRUE(flash_backward_beats_hopper(problem(256, 256, 1, 128)));
  EXPECT_FALSE(flash_backward_beats_hopper(problem(128, 128, 1, 128)));
  EXPECT_FALSE(flash_backward_beats_hopper(problem(512, 512, 1, 64)));
  EXPECT_FALSE(flash_backward_beats_hopper(problem(256, 256, 48, 64)));
}

TEST(AttentionFewRows, IsOfferedOnlyThereWithTheWorkspaceOfTheKernelsItGoesTo) {
  const auto& few = row_of("flash_few_rows");
  const DeviceTraits h200{.compute_capability = 90};
  EXPECT_NE(few.unsupported(problem(512, 512, 48), h200).find("flash_hopper"), std::string::npos);
  EXPECT_NE(few.unsupported(problem(4096, 4096, 1, 256), h200).find("128"), std::string::npos);
  const AttentionProblem in_parts = problem(4096, 4096), brief = problem(200, 200);
  EXPECT_EQ(few.unsupported(in_parts, h200), "");
  EXPECT_EQ(few.unsupported(brief, h200), "");
  const auto bytes = [&](const char* variant, const AttentionProblem& p, Pass pass) {
    return row_of(variant).workspace(p, pass);
  };
  EXPECT_GT(bytes("flash", in_parts, Pass::forward), 0u);
  EXPECT_EQ(few.workspace(in_parts, Pass::forward), bytes("flash", in_parts, Pass::forward));
  EXPECT_EQ(few.workspace(in_parts, Pass::backward), bytes("flash_hopper", in_parts, Pass::backward));
  EXPECT_EQ(few.workspace(brief, Pass::forward), 0u);
  EXPECT_EQ(few.workspace(brief, Pass::backward), bytes("flash", brief, Pass::backward));
}

class CudaAttentionFewRows : public testing::TestWithParam<AttentionDims> {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }
};

TEST_P(CudaAttentionFewRows, GivesTheBitsOfTheKernelsItGoesTo) {
  const AttentionDims d = GetParam();
  const AttentionProblem p{d.B, d.Tq, d.Tk, d.H, d.Hkv, d.D, DType::bf16, 1, d.causal};
  const OpCase c = attention_case(d);
  const CaseData data = draw_case(c, DType::bf16, 3);
  const auto run = [&](const char* variant) {
    RankOptions options;
    options.device = Device::cuda();
    options.variants.set("attention", variant);
    RankContext ctx(options);
    return run_case(ctx, c, data, DType::bf16);
  };
  RankOptions options;
  options.device = Device::cuda();
  if (const std::string why = row_of("flash_few_rows").unsupported(p, RankContext(options).traits());
      !why.empty())
    GTEST_SKIP() << why;
  const CaseResult few = run("flash_few_rows");
  EXPECT_EQ(few.y, run(parts_beat_hopper(p) ? "flash" : "flash_hopper").y);
  // Where the passes go to different kernels, they still agree on what lies between them.
  const CaseResult whole = run(flash_backward_beats_hopper(p) ? "flash" : "flash_hopper");
  ASSERT_EQ(few.grads.size(), whole.grads.size());
  for (std::size_t i = 0; i < few.grads.size(); ++i)
    EXPECT_LT(relative_error(few.grads[i], whole.grads[i]), 0.01) << "gradient " << i;
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaAttentionFewRows,
                         testing::Values(AttentionDims{1, 2049, 2049, 1, 1, 64},
                                         AttentionDims{1, 1, 5000, 4, 2, 128, false},
                                         AttentionDims{1, 1030, 1030, 1, 1, 32},
                                         AttentionDims{2, 200, 200, 4, 2, 64},
                                         AttentionDims{1, 130, 256, 3, 1, 80, false}));

}  // namespace
}  // namespace kiln
