// A row that is faster than its roofline says why, from its own figures.
#include "studies/roofline.h"

#include <gtest/gtest.h>

#include "rows/row_values.h"

namespace kiln {
namespace {

TEST(Roofline, TheReasonFollowsFromTheFigures) {
  EXPECT_EQ(why_below_roofline({.measured = 5, .own = 6, .best = 4, .cached = 1}), "");
  EXPECT_EQ(why_below_roofline({.measured = 4, .own = 4, .best = 4, .cached = 1}), "");
  EXPECT_EQ(why_below_roofline({.measured = 3, .own = 2, .best = 4, .cached = 1}), "less work");
  EXPECT_EQ(why_below_roofline({.measured = 3, .own = 6, .best = 4, .cached = 1}), "cache");
  EXPECT_EQ(why_below_roofline({.measured = 0.5, .own = 6, .best = 4, .cached = 1}), "unexplained");
  EXPECT_EQ(why_below_roofline({.measured = 3, .own = 6, .best = 4, .cached = 4}), "unexplained");
}

TEST(Roofline, BytesThatFitIntoTheCacheCostNothing) {
  const Rates best{.flops = 1e9, .bytes = 1e6};
  const Cost cost{.flops = 2e6, .bytes = 4e3};
  EXPECT_DOUBLE_EQ(roofline_ms(cost, best), 4);
  EXPECT_DOUBLE_EQ(roofline_ms(cost, best, 4e3), 2);
  EXPECT_DOUBLE_EQ(roofline_ms(cost, best, 3999), 4);
  std::vector<TimedOp> ops(2);
  ops[0].cost = cost;
  ops[1].cost = {.flops = 0, .bytes = 8e3};
  EXPECT_DOUBLE_EQ(sum_of_rooflines(ops, best), 12);
  EXPECT_DOUBLE_EQ(sum_of_rooflines(ops, best, 5e3), 10);
}

TEST(Roofline, NoCellSaysMoreThanAllOfIt) {
  Json row = roofline_json({.measured = 8, .own = 6, .best = 4, .cached = 1});
  EXPECT_EQ(of_roofline_cell(row), "50 %");
  EXPECT_FALSE(row.contains("below_roofline"));
  EXPECT_TRUE(roofline_notes(std::vector<Json>{row}).empty());
  row = roofline_json({.measured = 2, .own = 6, .best = 4, .cached = 1});
  EXPECT_EQ(of_roofline_cell(row), "faster: cache");
  ASSERT_EQ(roofline_notes(std::vector<Json>{row, row}).size(), 1U);
  EXPECT_NE(
      roofline_notes(std::vector<Json>{row, row})[0].find("2 rows are faster than the roofline (cache)"),
      std::string::npos);
  row = roofline_json({.measured = 0.5, .own = 6, .best = 4, .cached = 1});
  EXPECT_EQ(of_roofline_cell(row), "faster: unexplained");
}

TEST(Roofline, RowsOfTheFirstSchemaHaveTheirReasonFromTheCache) {
  Json row = {{"of_roofline", 2.15}, {"fits_in_cache", true}, {"predicted_ms", 3.0}, {"floor_ms", 2.0}};
  EXPECT_EQ(of_roofline_cell(row), "faster: cache");
  row["fits_in_cache"] = false;
  EXPECT_EQ(of_roofline_cell(row), "faster: unexplained");
  row["of_roofline"] = 0.5;
  EXPECT_EQ(of_roofline_cell(row), "50 %");
  EXPECT_EQ(own_roofline_of(row), 3.0);
  EXPECT_EQ(roofline_of(row), 2.0);
  row["own_roofline_ms"] = 5.0;
  EXPECT_EQ(own_roofline_of(row), 5.0);
}

}  // namespace
}  // namespace kiln
