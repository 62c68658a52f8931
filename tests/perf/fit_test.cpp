#include "perf/model/fit.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kiln {
namespace {

TEST(Fit, FindsThePowerThatMadeThePoints) {
  std::vector<Point> points;
  for (double x : {3.0, 7.0, 20.0, 100.0}) points.push_back({x, 0.4 * std::pow(x, 1.7)});
  std::optional<PowerLaw> law = fit_power(points);
  ASSERT_TRUE(law);
  EXPECT_NEAR(law->exponent, 1.7, 1e-9);
  EXPECT_NEAR(law->factor, 0.4, 1e-9);
  EXPECT_NEAR(law->error, 0, 1e-6);
  EXPECT_NEAR(law->r_squared, 1, 1e-9);
  points[1].y *= 1.5;  // another input, another answer
  law = fit_power(points);
  EXPECT_GT(std::abs(law->exponent - 1.7), 0.01);
  EXPECT_GT(law->error, 0.1);
  EXPECT_LT(law->r_squared, 1);
}

TEST(Fit, NeedsTwoDifferentSizesAboveZero) {
  EXPECT_FALSE(fit_power({}));
  EXPECT_FALSE(fit_power(std::vector<Point>{{2, 3}}));
  EXPECT_FALSE(fit_power(std::vector<Point>{{2, 3}, {2, 4}}));
  EXPECT_FALSE(fit_power(std::vector<Point>{{2, 3}, {4, 0}}));
  const auto two = fit_power(std::vector<Point>{{2, 3}, {4, 12}});
  ASSERT_TRUE(two);
  EXPECT_NEAR(two->exponent, 2, 1e-12);
  EXPECT_EQ(two->error, 0);
}

// Fused costs 4 + x, naive 1 + 2 x: they cross at 3.
std::vector<Duel> duels_at(std::initializer_list<double> sizes) {
  std::vector<Duel> all;
  for (double x : sizes) all.push_back({x, 1 + 2 * x, 4 + x});
  return all;
}

TEST(Crossovers, LieBetweenTheLastLostAndTheFirstWon) {
  const Crossover c = crossover(duels_at({64, 1, 2, 4, 16}));
  EXPECT_EQ(c.kind, Crossover::Kind::from);
  EXPECT_EQ(c.before, 2);
  EXPECT_EQ(c.first_won, 4);
  EXPECT_GT(c.size, 2);
  EXPECT_LT(c.size, 4);
  EXPECT_EQ(str(c, "rows"), "pays from rows = 3 (between 2 and 4)");
  EXPECT_EQ(crossover(duels_at({4, 16})).kind, Crossover::Kind::always);
  EXPECT_EQ(str(crossover(duels_at({8, 16})), "rows"), "pays at every size measured, from rows = 8");
  EXPECT_EQ(str(crossover(duels_at({1, 2})), "rows"), "does not pay at the largest size measured");
  EXPECT_EQ(str(crossover({}), "rows"), "not measured");
}

TEST(Crossovers, ALaterLossTakesTheWinBack) {
  std::vector<Duel> all = duels_at({1, 2, 4, 16, 64});
  all[3].judged = 100;  // at 16
  EXPECT_EQ(crossover(all).before, 16);
  EXPECT_EQ(crossover(all).first_won, 64);
}

}  // namespace
}  // namespace kiln
