#include "perf/model/formula.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace kiln {
namespace {

const FormulaValues kValues = {{"B", 4096}, {"D", 2}, {"N", 8}, {"N_f", 4}, {"C", 4.6e14}};

double value(const char* text) { return Formula(text).value(kValues); }

TEST(Formula, NeighboursAreMultipliedAndDivisionGoesFromTheLeft) {
  EXPECT_EQ(value("6 B D"), 6.0 * 4096 * 2);
  EXPECT_EQ(value("12 B D / N D"), 12.0 * 4096 * 2 / 8 * 2);
  EXPECT_EQ(value("12 B D / (N D)"), 12.0 * 4096 * 2 / 16);
  EXPECT_EQ(value("N - 1 - 2"), 5);
  EXPECT_EQ(value("-N + 10"), 2);
  EXPECT_EQ(value("2 N^2"), 128);
  EXPECT_EQ(value("2^3^2"), 512);
  EXPECT_EQ(value("2(N - 1)"), 14);
  EXPECT_EQ(value("N_f N"), 32);
}

TEST(Formula, Functions) {
  EXPECT_EQ(value("ceil(N / 3)"), 3);
  EXPECT_EQ(value("floor(N / 3)"), 2);
  EXPECT_EQ(value("sqrt(2 N)"), 4);
  EXPECT_EQ(value("max(N, D) + min(N, D)"), 10);
}

TEST(Formula, ShowsTheNumbersItPutsIn) {
  EXPECT_EQ(Formula("6 B D / (N_f - 1)").with_numbers(kValues), "6 * 4096 * 2 / (4 - 1)");
  EXPECT_EQ(Formula("ceil(B / C)").with_numbers(kValues), "ceil(4096 / 4.6e14)");
  EXPECT_EQ(Formula("max(N, D^2)").with_numbers(kValues), "max(8, 2^2)");
  EXPECT_EQ(Formula("2(N + 1)").with_numbers(kValues), "2 * (8 + 1)");
}

TEST(Formula, KnowsItsNames) {
  EXPECT_EQ(Formula("ceil(B D / N_f) + B").names(), (std::vector<std::string>{"B", "D", "N_f"}));
}

TEST(Formula, RefusesWhatIsNone) {
  for (const char* wrong : {"", "6 *", "(B", "B)", "B + ", "ceil B", "min(B)", "B $ D", "1.2.3 )"})
    EXPECT_THROW((void)value(wrong), Error) << wrong;
  EXPECT_THROW((void)value("B Q"), Error);
}

TEST(Formula, NumbersAsPeopleWriteThem) {
  EXPECT_EQ(formula_number(4096), "4096");
  EXPECT_EQ(formula_number(4.6e14), "4.6e14");
  EXPECT_EQ(formula_number(1e-5), "1e-5");
  EXPECT_EQ(formula_number(0.25), "0.25");
  EXPECT_EQ(formula_number(123456789), "123456789");
  EXPECT_EQ(formula_number(2.19848e11), "2.198e11");
}

}  // namespace
}  // namespace kiln
