// Two curves of losses: their difference is found where it is, and a step that learns otherwise fails.
#include "studies/ablation/quality_curves.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/has.h"

namespace kiln {
namespace {

QualityReport made_up() {
  QualityReport r;
  r.request.size.name = "made-up";
  r.request.steps = 200;
  for (int s = 1; s <= 200; ++s) {
    const double loss = 2 + 4 * std::exp(-s / 40.0);
    r.baseline.push_back(loss);
    r.optimized.push_back(loss);
  }
  return r;
}

TEST(QualityCurves, TheSameCurveDiffersNowhere) {
  const QualityReport r = made_up();
  EXPECT_EQ(r.worst(), 0);
  EXPECT_TRUE(r.passed());
  EXPECT_EQ(r.window(), 10);
}

TEST(QualityCurves, TheLargestDifferenceIsFoundWhereItIs) {
  QualityReport r = made_up();
  for (int s = 100; s < 110; ++s) r.optimized[static_cast<std::size_t>(s)] *= 1.05;
  EXPECT_NEAR(r.worst(), 0.05, 1e-9);
  EXPECT_EQ(r.worst_step(), 110);
  EXPECT_FALSE(r.passed());
  EXPECT_TRUE(has(quality_page(r).notes.front(), "5.00 %, at step 110"));
  r.optimized[150] = NAN;
  EXPECT_FALSE(r.passed());
}

TEST(QualityCurves, ThePictureHasBothCurves) {
  const std::string svg = quality_svg(made_up());
  for (const char* part : {"baseline", "optimized", "made-up", "loss", "step"})
    EXPECT_TRUE(has(svg, part)) << part;
}

TEST(QualityCurves, AnOptimizedStepLearnsAsTheBaselineDoes) {
  QualityRequest request;
  request.size = model_of(ModelOptions{.sizes = {"nano"}});
  request.batch = 4;
  request.context = 32;
  request.steps = 40;
  request.threads = 1;
  request.device = Device::cpu();
  request.only = {"fused_rmsnorm", "fused_swiglu", "fused_adamw"};
  const QualityReport r = quality_curves(request, [](const std::string&) {});
  ASSERT_EQ(r.baseline.size(), 40U);
  EXPECT_LT(r.last_baseline(), 0.9 * r.baseline.front());  // there is something to compare
  EXPECT_TRUE(r.passed()) << r.worst();
}

}  // namespace
}  // namespace kiln
