// One long head: more key blocks than the GPU holds CTAs, so that a CTA gets several
// (hopper/backward_tile_scheduler.h). A naive run would need gigabytes of scores, so fp32 in the small is the
// measure.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/attention/hopper/backward_tile_scheduler.h"
#include "ops/attention_case.h"
#include "ops/cases/run_case.h"
#include "support/gpu.h"

namespace kiln {
namespace {

CaseResult run_variant(const std::string& variant, const OpCase& c, const CaseData& data, DType dtype) {
  RankOptions options;
  options.device = Device::cuda();
  options.variants.set("attention", variant);
  RankContext ctx(options);
  return run_case(ctx, c, data, dtype);
}

DeviceTraits cuda_traits() {
  RankOptions options;
  options.device = Device::cuda();
  return RankContext(options).traits();
}

class CudaAttentionLong : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }
};

// The worst of 128 rows at a time: few of them have to do with the last serpentine row, and over all rows
// what it does wrong would not show. Lost, it is 7 % of its rows' dq and all of their dk and dv; rounding to
// bf16 is 0.4
// %.
double worst_rows(const std::vector<double>& got, const std::vector<double>& exact, int64_t width) {
  const auto step = static_cast<std::ptrdiff_t>(128 * width);
  double worst = 0;
  for (std::ptrdiff_t i = 0, all = std::ssize(got); i < all; i += step) {
    const auto part = [&](const std::vector<double>& x) {
      return std::vector<double>(x.begin() + i, x.begin() + std::min(i + step, all));
    };
    worst = std::max(worst, relative_error(part(got), part(exact)));
  }
  return worst;
}

// At heads of 64 flash has two CTAs to a multiprocessor, and two serpentine rows.
TEST_P(CudaAttentionLong, AgreesWithFp32) {
  const AttentionDims d{1, 34300, 34300, 2, 1, GetParam()};
  const AttentionProblem p = problem_of(d, DType::bf16);
  ASSERT_GT(hopper::BackwardTileScheduler(p, 128, 128, 132).serpentine_rows, 2);
  const OpCase c = attention_case(d);
  const CaseData data = draw_case(c, DType::bf16, 3);
  const CaseResult exact = run_variant("flash_fp32", c, data, DType::f32);
  for (const auto& row : AttentionOp::rows()) {
    const std::string variant = row.name;
    if (row.device != DeviceType::cuda || (variant != "flash" && !variant.starts_with("flash_hopper")))
      continue;
    if (!row.unsupported(p, cuda_traits()).empty()) continue;
    SCOPED_TRACE(variant);
    const CaseResult got = run_variant(variant, c, data, DType::bf16);
    EXPECT_LE(worst_rows(got.y, exact.y, d.H * d.D), 0.02);
    for (std::size_t i = 0; i < got.grads.size(); ++i) {
      const int64_t heads = i == 0 ? d.H : d.Hkv;
      EXPECT_LE(worst_rows(got.grads[i], exact.grads[i], heads * d.D), 0.02) << "gradient " << i;
    }
    if (variant.ends_with("atomic")) continue;
    EXPECT_EQ(run_variant(variant, c, data, DType::bf16).grads, got.grads);
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, CudaAttentionLong, testing::Values(64, 128));

}  // namespace
}  // namespace kiln
