// Attention's fast CUDA variants give the same bits a hundred times over, whatever the shared memory holds
// before: what racecheck cannot see (copies and matmuls that run asynchronously) shows here.
#include <gtest/gtest.h>

#include "gpu/shared_memory.h"
#include "ops/attention/attention.h"
#include "ops/attention_case.h"
#include "ops/cases/run_case.h"
#include "support/gpu.h"

namespace kiln {
namespace {

class CudaAttentionRepeat : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }
};

void expect_the_same_bits(const std::string& variant, const AttentionDims& d) {
  RankOptions options;
  options.device = Device::cuda();
  options.variants.set("attention", variant);
  RankContext ctx(options);
  const DType dtype = variant == "flash_fp32" ? DType::f32 : DType::bf16;
  const OpCase c = attention_case(d);
  SCOPED_TRACE(c.name);
  const AttentionProblem p = problem_of(d, dtype);
  for (const auto& row : AttentionOp::rows()) {
    if (variant == row.name && row.device == DeviceType::cuda && !row.unsupported(p, ctx.traits()).empty())
      GTEST_SKIP() << row.unsupported(p, ctx.traits());
  }
  const CaseData data = draw_case(c, dtype, 5);
  const CaseResult first = run_case(ctx, c, data, dtype);
  for (const double y : first.y) ASSERT_EQ(y, y);
  constexpr int kRuns = 100;
  for (int run = 1; run < kRuns; ++run) {
    if (run % 4 == 0) poison_shared_memory(ctx);
    const CaseResult again = run_case(ctx, c, data, dtype);
    ASSERT_EQ(first.y, again.y) << "run " << run;
    ASSERT_EQ(first.grads, again.grads) << "run " << run;
  }
}

// Lengths at which a block has several key blocks and heads, in each of the orders of dq.
TEST_P(CudaAttentionRepeat, HasTheSameBitsAHundredTimes) {
  const std::string variant = GetParam();
  expect_the_same_bits(variant, {2, 520, 520, 40, 40, 64});
  expect_the_same_bits(variant, {1, 1000, 1000, 4, 2, 128});
  expect_the_same_bits(variant, {1, 500, 500, 8, 8, 128, false});
  expect_the_same_bits(variant, {1, 300, 470, 4, 2, 80});
  expect_the_same_bits(variant,
                       {1, 1000, 1000, 1, 1, 32});  // flash: split keys, small key blocks in backward
  expect_the_same_bits(variant, {1, 130, 900, 2, 1, 64, false});
}

INSTANTIATE_TEST_SUITE_P(All, CudaAttentionRepeat,
                         testing::Values("flash_hopper", "flash", "flash_fp32", "tiled_async"));

}  // namespace
}  // namespace kiln
