#include "perf/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace kiln {
namespace {

// Printed in every table of the distribution.
TEST(Statistics, StudentsQuantilesAreThoseOfTheTables) {
  EXPECT_NEAR(student_quantile(0.975, 1), 12.7062047, 1e-6);
  EXPECT_NEAR(student_quantile(0.975, 2), 4.30265273, 1e-7);
  EXPECT_NEAR(student_quantile(0.975, 9), 2.26215716, 1e-7);
  EXPECT_NEAR(student_quantile(0.95, 30), 1.69726089, 1e-7);
  EXPECT_NEAR(student_quantile(0.975, 1e7), 1.95996398, 1e-5);
  EXPECT_NEAR(student_quantile(0.025, 9), -2.26215716, 1e-7);
  EXPECT_NEAR(student_quantile(0.5, 5), 0, 1e-6);
  EXPECT_NEAR(student_cdf(1, 1), 0.75, 1e-12);
}

TEST(Statistics, TheIntervalOfAMean) {
  const Interval i = confidence_95(std::vector<double>{1, 2, 3, 4, 5});
  // mean 3, std sqrt(2.5), t(4) = 2.7764451
  EXPECT_NEAR(i.half_width(), 2.7764451 * std::sqrt(2.5 / 5), 1e-6);
  EXPECT_NEAR((i.low + i.high) / 2, 3, 1e-12);
  const Interval one = confidence_95(std::vector<double>{7});
  EXPECT_EQ(one.low, 7);
  EXPECT_EQ(one.high, 7);
  EXPECT_EQ(confidence_95({}).high, 0);
  EXPECT_NEAR(variation(std::vector<double>{1, 2, 3, 4, 5}), std::sqrt(2.5) / 3, 1e-12);
  EXPECT_EQ(variation(std::vector<double>{4}), 0);
}

// All orders of two sets, counted one by one.
double p_by_counting(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> all(a);
  all.insert(all.end(), b.begin(), b.end());
  auto u_of = [&](const std::vector<bool>& first) {
    double u = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t j = 0; j < all.size(); ++j) u += first[i] && !first[j] && all[i] > all[j];
    }
    return u;
  };
  std::vector<bool> own(all.size(), false);
  std::fill(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(a.size()), true);
  const double middle = static_cast<double>(a.size() * b.size()) / 2;
  const double away = std::abs(u_of(own) - middle);
  std::vector<bool> pick(own);
  std::sort(pick.begin(), pick.end());
  double far = 0, count = 0;
  do {
    ++count;
    far += std::abs(u_of(pick) - middle) >= away - 1e-9;
  } while (std::next_permutation(pick.begin(), pick.end()));
  return far / count;
}

TEST(Statistics, TheRankTestCountsOrders) {
  const std::vector<double> a = {1.1, 2.3, 3.7, 0.4, 5.2}, b = {2.0, 4.1, 6.3, 7.9, 8.8, 3.3};
  EXPECT_NEAR(rank_test(a, b), p_by_counting(a, b), 1e-12);
  EXPECT_NEAR(rank_test(b, a), rank_test(a, b), 1e-12);
  const std::vector<double> low = {1, 2, 3, 4}, high = {5, 6, 7, 8};
  EXPECT_NEAR(rank_test(low, high), 2.0 / 70, 1e-12);
  EXPECT_EQ(rank_test(low, {}), 1);
}

TEST(Statistics, ManySamplesAndTiesUseTheNormalCurve) {
  const std::vector<double> same(40, 1.0);
  EXPECT_EQ(rank_test(same, same), 1);
  std::vector<double> a, b;
  for (int i = 0; i < 60; ++i) {
    a.push_back(100 + i % 7);
    b.push_back(101 + (i + 3) % 7);
  }
  EXPECT_LT(rank_test(a, b), 0.05);
  EXPECT_GT(rank_test(a, a), 0.9);
  // The curve and the count agree where both can be had.
  std::vector<double> c, d;
  for (int i = 0; i < 30; ++i) {
    c.push_back(i);
    d.push_back(i + 5.5);
  }
  std::vector<double> longer = d;
  longer.push_back(20.25);  // 31 samples: by the curve
  EXPECT_NEAR(rank_test(c, d), rank_test(c, longer), 0.02);
}

TEST(Statistics, AComparisonSaysWhetherToBelieveIt) {
  using V = Comparison::Verdict;
  std::vector<double> slow, fast, alike;
  for (int i = 0; i < 10; ++i) {
    slow.push_back(2.0 + 0.013 * i);
    fast.push_back(1.0 + 0.017 * i);
    alike.push_back(2.0 + 0.0131 * ((i * 7) % 10));
  }
  EXPECT_EQ(compare(slow, fast).verdict, V::faster);
  EXPECT_NEAR(compare(slow, fast).ratio, 2.0585 / 1.0765, 1e-9);
  EXPECT_EQ(compare(fast, slow).verdict, V::slower);
  EXPECT_EQ(compare(slow, alike).verdict, V::same);
  EXPECT_FALSE(compare(slow, alike).significant());
  // One straggler moves a mean by a third and no verdict.
  std::vector<double> tail = fast;
  tail.back() = 30;
  EXPECT_EQ(compare(slow, tail).verdict, V::faster);
  // Three on each side settle nothing, however far apart: 1 order in 10 looks so by chance.
  EXPECT_EQ(compare(std::vector<double>{9, 9.1, 9.2}, std::vector<double>{1, 1.1, 1.2}).verdict, V::too_few);
  EXPECT_EQ(compare({}, fast).verdict, V::too_few);
  // One slow call against many fast ones: 2 / 49 of all orders are as clear.
  std::vector<double> many;
  for (int i = 0; i < 48; ++i) many.push_back(1 + 0.001 * i);
  EXPECT_EQ(compare(std::vector<double>{300}, many).verdict, V::faster);
  EXPECT_NEAR(compare(std::vector<double>{300}, many).p, 2.0 / 49, 1e-12);
  EXPECT_EQ(compare(std::vector<double>{1.0205}, many).verdict, V::same);
  EXPECT_EQ(str(compare(slow, fast)), "1.91x");
  EXPECT_EQ(str(compare(std::vector<double>{9, 9.1, 9.2}, std::vector<double>{1, 1.1, 1.2})),
            "8.27x (too few samples)");
  EXPECT_NE(str(compare(slow, alike)).find("(same)"), std::string::npos);
}

}  // namespace
}  // namespace kiln
