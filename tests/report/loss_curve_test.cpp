#include "report/charts/loss_curve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace kiln {
namespace {

TEST(LossCurve, FallsFromTheTopLeftToTheBottomRight) {
  EXPECT_EQ(draw_curve(std::vector<double>{4, 3, 2, 1}, 10, 4),
            "       4 |*\n"
            "         | *\n"
            "         |  *\n"
            "       1 |   *\n");
}

TEST(LossCurve, AColumnIsTheMeanOfItsPoints) {
  EXPECT_EQ(draw_curve(std::vector<double>{9, 7, 1, 3}, 2, 2),
            "       8 |*\n"
            "       2 | *\n");
}

TEST(LossCurve, LeavesOutWhatIsNotFiniteAndDrawsALevelLine) {
  EXPECT_EQ(draw_curve(std::vector<double>{2, NAN, 2}, 3, 2),
            "       2 |* *\n"
            "       2 |\n");
  EXPECT_EQ(draw_curve(std::vector<double>{NAN, INFINITY}, 5, 3), "");
  EXPECT_EQ(draw_curve({}, 5, 3), "");
}

}  // namespace
}  // namespace kiln
