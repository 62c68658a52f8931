#include "perf/timing/statistics.h"

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
  // Times: one outlier among a few must not make the interval begin before 0.
  const std::vector<double> outlier = {1, 1, 1, 40};
  EXPECT_LT(confidence_95(outlier).low, 0);
  ASSERT_TRUE(interval_of_times(outlier));
  EXPECT_EQ(interval_of_times(outlier)->low, 0);
  EXPECT_EQ(interval_of_times(outlier)->high, confidence_95(outlier).high);
  EXPECT_FALSE(interval_of_times(std::vector<double>{1, 2, 3})) << "too few to say";
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
  using V = Comparison::Significance;
  std::vector<double> slow, fast, alike;
  for (int i = 0; i < 10; ++i) {
    slow.push_back(2.0 + 0.013 * i);
    fast.push_back(1.0 + 0.017 * i);
    alike.push_back(2.0 + 0.0131 * ((i * 7) % 10));
  }
  EXPECT_EQ(compare(slow, fast).significance, V::faster);
  EXPECT_NEAR(compare(slow, fast).ratio, 2.0585 / 1.0765, 1e-9);
  EXPECT_EQ(compare(fast, slow).significance, V::slower);
  EXPECT_EQ(compare(slow, alike).significance, V::same);
  EXPECT_FALSE(compare(slow, alike).significant());
  // One straggler moves a mean by a third and no conclusion.
  std::vector<double> tail = fast;
  tail.back() = 30;
  EXPECT_EQ(compare(slow, tail).significance, V::faster);
  // Three on each side settle nothing, however far apart: 1 order in 10 looks so by chance.
  EXPECT_EQ(compare(std::vector<double>{9, 9.1, 9.2}, std::vector<double>{1, 1.1, 1.2}).significance,
            V::too_few);
  EXPECT_EQ(compare({}, fast).significance, V::too_few);
  // One slow call against many fast ones: 2 / 49 of all orders are as clear.
  std::vector<double> many;
  for (int i = 0; i < 48; ++i) many.push_back(1 + 0.001 * i);
  EXPECT_EQ(compare(std::vector<double>{300}, many).significance, V::faster);
  EXPECT_NEAR(compare(std::vector<double>{300}, many).p, 2.0 / 49, 1e-12);
  EXPECT_EQ(compare(std::vector<double>{1.0205}, many).significance, V::same);
  EXPECT_EQ(str(compare(slow, fast)), "1.91x");
  EXPECT_EQ(str(compare(std::vector<double>{9, 9.1, 9.2}, std::vector<double>{1, 1.1, 1.2})),
            "8.27x (too few samples)");
  EXPECT_NE(str(compare(slow, alike)).find("(same: p "), std::string::npos);
}

// All ways in which turns can fall, counted one by one.
double p_of_turns_by_counting(const std::vector<double>& a, const std::vector<double>& b) {
  const std::size_t n = a.size();
  std::vector<double> apart;
  for (std::size_t i = 0; i < n; ++i) apart.push_back(std::log(a[i] / b[i]));
  std::vector<double> ranks(n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      const double x = std::abs(apart[i]), y = std::abs(apart[j]);
      ranks[i] += i == j ? 1 : y < x ? 1 : y == x ? 0.5 : 0;
    }
  }
  const auto away = [&](auto above) {
    double w = 0;
    for (std::size_t i = 0; i < n; ++i) w += above(i) ? ranks[i] : -ranks[i];
    return std::abs(w);
  };
  const double own = away([&](std::size_t i) { return apart[i] > 0; });
  double far = 0;
  for (unsigned way = 0; way < 1U << n; ++way)
    far += away([&](std::size_t i) { return (way >> i & 1U) != 0; }) >= own - 1e-9;
  return far / (1U << n);
}

TEST(Statistics, TheTestOfTurnsCountsTheirSides) {
  const std::vector<double> a = {1.1, 2.3, 3.7, 0.9, 5.2, 2.0, 4.4}, b = {1.0, 2.2, 3.9, 0.7, 4.1, 1.9, 4.3};
  EXPECT_NEAR(turns_test(a, b), p_of_turns_by_counting(a, b), 1e-12);
  EXPECT_NEAR(turns_test(b, a), turns_test(a, b), 1e-12);
  const std::vector<double> tied = {2, 4, 1, 8, 3, 10}, beside = {1, 2, 2, 4, 1, 4};  // 2x, and 1/2
  EXPECT_NEAR(turns_test(tied, beside), p_of_turns_by_counting(tied, beside), 1e-12);
  EXPECT_EQ(turns_test(a, a), 1) << "no turn differs";
  EXPECT_EQ(turns_test({}, {}), 1);
  EXPECT_EQ(turns_test(a, tied), 1) << "no turns";
  // The curve, beyond 200 turns, continues the count.
  std::vector<double> c, d;
  for (int i = 0; i < 200; ++i) {
    c.push_back(10 + 0.01 * ((i * 37) % 101));
    d.push_back(10.06 + 0.01 * ((i * 53) % 97));
  }
  const double counted = turns_test(c, d);
  c.push_back(10.5);
  d.push_back(10.52);
  EXPECT_NEAR(turns_test(c, d), counted, 0.02);
}

TEST(Statistics, TurnsShowWhatDriftHides) {
  using V = Comparison::Significance;
  std::vector<double> baseline, judged;  // 3 % faster, on a machine that becomes twice as slow
  for (int i = 0; i < 10; ++i) {
    baseline.push_back(10 + i * 1.1);
    judged.push_back(baseline.back() / (1.03 + 0.001 * ((i * 7) % 5)));
  }
  EXPECT_EQ(compare(baseline, judged).significance, V::same);
  const Comparison c = compare_turns(baseline, judged);
  EXPECT_EQ(c.significance, V::faster);
  EXPECT_NEAR(c.ratio, 1.032, 1e-9);
  EXPECT_NEAR(c.p, 2.0 / 1024, 1e-12);
  EXPECT_EQ(compare_turns(judged, baseline).significance, V::slower);
  EXPECT_EQ(compare_turns(baseline, baseline).significance, V::same);
  // Five turns all to one side happen once in 16 by chance.
  const std::vector<double> five = {5, 6, 7, 8, 9}, half = {2.5, 3, 3.5, 4, 4.4};
  EXPECT_EQ(compare_turns(five, half).significance, V::too_few);
  EXPECT_EQ(compare_turns({}, {}).significance, V::too_few);
  baseline.push_back(20);
  EXPECT_EQ(compare_turns(baseline, judged).p, compare(baseline, judged).p) << "these are no turns";
}

TEST(Statistics, NearOneTheDirectionIsSaid) {
  using V = Comparison::Significance;
  EXPECT_EQ(str(Comparison{V::slower, 0.9972, 0.001}), "0.997x (slower)");
  EXPECT_EQ(str(Comparison{V::faster, 1.0031, 0.001}), "1.003x (faster)");
  EXPECT_EQ(str(Comparison{V::same, 1.0004, 0.5}), "1.000x (same: p 0.5)");
  EXPECT_EQ(str(Comparison{V::same, 1.02, 0.001, 0.043}), "1.02x (same: noise is 4.3 %)");
  EXPECT_EQ(str(Comparison{V::slower, 0.75, 0.001}), "0.75x");
  EXPECT_EQ(str(Comparison{V::faster, 1.012, 0.001}), "1.01x");
}

}  // namespace
}  // namespace kiln
