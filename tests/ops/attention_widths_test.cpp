// Every CUDA variant of attention at every width and kind of shape, in every format it takes, with all the
// tiles it may be told to take: at most twice as far from fp64 as naive in the same format. The case list
// (ops/attention/cases.cpp) is kept small for the CPU's sake; these sizes are for a GPU alone.
#include <gtest/gtest.h>

#include <map>

#include "ops/attention/tile_choice.h"
#include "ops/attention_case.h"
#include "ops/cases/run_case.h"
#include "support/gpu.h"

namespace kiln {
namespace {

RankOptions on_cuda(const std::string& variant) {
  RankOptions o;
  o.device = Device::cuda();
  o.variants.set("attention", variant);
  return o;
}

// `sums`: how many floors the gradients of q and k may be off by.
void expect_near(const CaseResult& got, const CaseResult& naive, const CaseResult& exact, double floor,
                 double sums) {
  EXPECT_LE(relative_error(got.y, exact.y), 2 * relative_error(naive.y, exact.y) + floor) << "o";
  for (std::size_t i = 0; i < got.grads.size(); ++i) {
    EXPECT_LE(relative_error(got.grads[i], exact.grads[i]),
              2 * relative_error(naive.grads[i], exact.grads[i]) + (i < 2 ? sums : 1) * floor)
        << "gradient " << i;
  }
}

// `only`: how a variant's name must begin.
void expect_all_variants(const AttentionDims& d, std::string_view only = "") {
  const OpCase c = attention_case(d);
  SCOPED_TRACE(c.name);
  RankContext naive(on_cuda("naive"));
  const std::map<DType, double> spacing = {
      {DType::f32, 0x1p-23}, {DType::bf16, 0x1p-7}, {DType::f16, 0x1p-10}};
  for (const auto& [dtype, ulp] : spacing) {
    const CaseData data = draw_case(c, dtype, 11);
    const CaseResult exact = run_case(naive, c, data, DType::f64), low = run_case(naive, c, data, dtype);
    const AttentionProblem p = problem_of(d, dtype);
    for (const auto& row : AttentionOp::rows()) {
      if (row.device != DeviceType::cuda || row.composed || std::string_view(row.name) == "naive") continue;
      if (!row.unsupported(p, naive.traits()).empty()) continue;
      const std::string variant = row.name;
      if (!variant.starts_with(only)) continue;
      SCOPED_TRACE(cat(variant, " ", name_of(dtype)));
      RankContext a(on_cuda(variant)), b(on_cuda(variant));
      const CaseResult first = run_case(a, c, data, dtype);
      // With one key the scores' gradient is zero: P (dP - delta), whose two are sums of D products in two
      // orders.
      const double sums = d.Tk == 1 ? static_cast<double>(d.D) : 1;
      expect_near(first, low, exact, variant.ends_with("_tf32") ? 0x1p-10 : ulp / 2, sums);
      if (variant.find("atomic") != std::string::npos) continue;
      const CaseResult second = run_case(b, c, data, dtype);
      EXPECT_EQ(first.y, second.y);
      EXPECT_EQ(first.grads, second.grads);
      for (const TileCandidate& candidate : tile_candidates(variant, p)) {
        SCOPED_TRACE(candidate.tiles.str());
        const AttentionChoice choice{shape_of(variant, p), candidate.tiles};
        b.attention_choices().use({&choice, 1});
        const CaseResult tuned = run_case(b, c, data, dtype);
        expect_near(tuned, low, exact, ulp / 2, sums);
        EXPECT_EQ(tuned.y, candidate.is_default ? first.y : run_case(b, c, data, dtype).y);
      }
    }
  }
}

class CudaAttentionWidths : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }
};

TEST_P(CudaAttentionWidths, AgreeWithNaive) {
  const int64_t D = GetParam();
  expect_all_variants({1, 1, 1, 2, 1, D});
  expect_all_variants({2, 131, 131, 3, 1, D, true, 24});  // primes, one key/value head, a view of wider rows
  expect_all_variants({1, 70, 197, 2, 2, D});
  expect_all_variants({1, 197, 70, 4, 2, D});  // a tile and more of queries that see nothing
  expect_all_variants({1, 129, 257, 1, 1, D, false, 5});
}

// Lengths at which flash_hopper's and flash's backward take key blocks in serpentine order, with early and
// late contributions to dq, and so many heads that a CTA goes on to the next; and a length from which
// flash_hopper's forward takes three warpgroups.
TEST_P(CudaAttentionWidths, AgreeWithNaiveOverManyTiles) {
  const int64_t D = GetParam();
  if (D != 32 && D != 64 && D != 80 && D != 128) GTEST_SKIP() << "as the next of 32, 64, 80, 128";
  const std::string_view only = "flash";
  expect_all_variants({2, 520, 520, 80, 40, D}, only);  // 400 key blocks, more than flash has CTAs at once
  expect_all_variants({2, 520, 520, 50, 25, D, false}, only);
  expect_all_variants({1, 700, 700, 2, 1, D}, only);
  if (D == 64) expect_all_variants({1, 2200, 2200, 2, 1, D}, only);
}

// So few blocks and so many keys that flash's forward splits the keys.
TEST_P(CudaAttentionWidths, AgreeWithNaiveInPartsOfTheKeys) {
  const int64_t D = GetParam();
  const std::string_view only = "flash";
  expect_all_variants({1, 700, 700, 1, 1, D}, only);
  expect_all_variants({1, 130, 1100, 2, 1, D, true, 24}, only);
  expect_all_variants({1, 1100, 600, 1, 1, D}, only);  // queries that see nothing
  expect_all_variants({2, 1, 2100, 2, 1, D}, only);
  expect_all_variants({1, 70, 1030, 1, 1, D, false, 5}, only);
}

// So many heads that variants take the larger of their blocks.
TEST_P(CudaAttentionWidths, AgreeWithNaiveInLargeBlocks) {
  const int64_t D = GetParam();
  if (D % 80 != 0 && D % 32 != 0) GTEST_SKIP() << "as the next multiple of 32";
  expect_all_variants(D > 128 ? AttentionDims{2, 65, 66, 66, 2, D} : AttentionDims{4, 129, 130, 66, 33, D});
}

INSTANTIATE_TEST_SUITE_P(All, CudaAttentionWidths,
                         testing::Values(16, 32, 64, 72, 80, 96, 128, 136, 160, 192, 256, 7, 255));

}  // namespace
}  // namespace kiln
