#include "studies/precision/grad_accumulation_study.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(AccumulationStudy, Fp32GradientsDoNotGrowWorseWithMicroBatches) {
  for (const GradAccumulationRow& row : gradient_accumulation({})) {
    ASSERT_EQ(row.cells.size(), 4u);
    const AccumulationCell &one = row.cells.front(), &most = row.cells.back();
    EXPECT_EQ(most.micro_batches, 64);
    if (row.policy.grad == DType::f32) {
      EXPECT_LT(most.error, 1.5 * one.error + 1e-6) << name_of(row.precision);
      EXPECT_LT(most.error, 1.5 * most.floor + 1e-6) << name_of(row.precision);
    } else {
      EXPECT_GT(most.error, 3 * most.floor) << name_of(row.precision);
      EXPECT_GT(most.error, 2 * one.error) << name_of(row.precision);
    }
  }
}

TEST(AccumulationStudy, IsWhatWasPredicted) {
  for (uint64_t seed : {0, 1}) {
    for (const GradAccumulationRow& row :
         gradient_accumulation({.batch = 5, .in = 33, .out = 7, .seed = seed})) {
      for (const AccumulationCell& c : row.cells) {
        if (row.policy.compute == DType::f32) {
          EXPECT_LT(c.error, 1e-6);
          continue;
        }
        EXPECT_GT(c.error, 0.6 * c.predicted) << name_of(row.precision) << " " << c.micro_batches;
        EXPECT_LT(c.error, 1.7 * c.predicted) << name_of(row.precision) << " " << c.micro_batches;
      }
    }
  }
}

}  // namespace
}  // namespace kiln
