#include "studies/precision/layer_norm_study.h"

#include <gtest/gtest.h>

#include <cmath>

#include "studies/precision/float_format.h"

namespace kiln {
namespace {

constexpr NarrowPart kParts[] = {NarrowPart::mean,   NarrowPart::variance, NarrowPart::rsqrt,
                                 NarrowPart::affine, NarrowPart::all,      NarrowPart::all_but_sums};

// Sums end within a few deviations of what they were predicted from: not where a scale is that close.
TEST(LayerNormStudy, OverflowsWherePredicted) {
  for (int64_t width : {64, 768, 3000}) {
    const LayerNormReport report = layer_norm_study({.width = width, .rows = 3});
    for (const LayerNormRow& row : report.rows) {
      for (NarrowPart p : kParts) {
        const double from = predicted_overflow(row.dtype, p, width);
        if (std::abs(std::log(row.scale / from)) < 0.3) continue;
        EXPECT_EQ(row.of(p).overflowed(), row.scale > from)
            << name_of(row.dtype) << " " << name_of(p) << " " << row.scale << " " << width;
      }
    }
  }
}

TEST(LayerNormStudy, Bf16NeverLeavesItsRangeAndLosesDigitsInTheSums) {
  for (const LayerNormRow& row : layer_norm_study({}).rows) {
    const double u = format_of(row.dtype).unit_roundoff();
    EXPECT_LT(row.floor, u);
    EXPECT_GT(row.floor, u / 8);
    EXPECT_LT(row.of(NarrowPart::affine).error, 4 * u);  // a few roundings one after the other
    if (row.dtype != DType::bf16) continue;
    for (NarrowPart p : kParts) {
      EXPECT_FALSE(row.of(p).overflowed());
      EXPECT_FALSE(row.of(p).underflowed());
      EXPECT_FALSE(row.of(p).lost_digits());
    }
    EXPECT_GT(row.of(NarrowPart::mean).error, 10 * row.floor);
    EXPECT_LT(row.of(NarrowPart::rsqrt).error, 4 * row.floor);
    EXPECT_LT(row.of(NarrowPart::all_but_sums).error, 4 * row.floor);
    EXPECT_GT(row.of(NarrowPart::all).error, 10 * row.of(NarrowPart::all_but_sums).error);
  }
}

TEST(LayerNormStudy, ShortRowsLoseLessInTheirSums) {
  const auto worst = [](int64_t width) {
    double error = 0;
    for (const LayerNormRow& row : layer_norm_study({.width = width, .rows = 16}).rows)
      if (row.dtype == DType::bf16) error = std::max(error, row.of(NarrowPart::mean).error);
    return error;
  };
  EXPECT_LT(2 * worst(16), worst(768));
}

TEST(LayerNormStudy, SmallInputsUnderflowInFp16sSquares) {
  const LayerNormReport report = layer_norm_study({});
  EXPECT_EQ(report.rows.front().scale, 1e-3);
  EXPECT_EQ(report.rows.front().dtype, DType::f16);
  EXPECT_TRUE(report.rows.front().of(NarrowPart::variance).underflowed());
  EXPECT_FALSE(report.rows.front().of(NarrowPart::mean).underflowed());
  EXPECT_EQ(report.rows.size(), 16u);
  EXPECT_EQ(report.rows.back().scale, 1e4);
}

}  // namespace
}  // namespace kiln
