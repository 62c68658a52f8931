// The loops against numbers known from PyTorch's, and the predictions against the loops.
#include "studies/precision/running_sum_study.h"

#include <gtest/gtest.h>

#include <cmath>

#include "studies/precision/float_format.h"

namespace kiln {
namespace {

const RunningSumRow& find(const RunningSumReport& r, DType accumulator, DType added, SumMethod method) {
  for (const RunningSumRow& row : r.rows)
    if (row.accumulator == accumulator && row.added == added && row.method == method) return row;
  throw Error("no such row");
}

double sum_of(const RunningSumReport& r, DType accumulator, DType added, SumMethod m = SumMethod::plain) {
  return find(r, accumulator, added, m).sum;
}

TEST(FloatFormat, IsWhatTheTypesDo) {
  for (DType t : {DType::f32, DType::bf16, DType::f16}) {
    with_float(t, [&](auto zero) {
      using T = decltype(zero);
      const FloatFormat f = format_of(t);
      for (double x : {1.0, 1.5, 4.0, 1000.0, f.smallest_normal(), f.smallest_normal() / 4}) {
        EXPECT_EQ(held_as<T>(x), x) << name_of(t);
        EXPECT_EQ(held_as<T>(x + f.spacing(x)), x + f.spacing(x)) << name_of(t) << " " << x;
        EXPECT_EQ(held_as<T>(x + 0.375 * f.spacing(x)), x) << name_of(t) << " " << x;
      }
      EXPECT_EQ(held_as<T>(f.largest), f.largest) << name_of(t);
      EXPECT_EQ(held_as<T>(f.smallest()), f.smallest()) << name_of(t);
      EXPECT_EQ(held_as<T>(f.smallest() / 4), 0) << name_of(t);
      EXPECT_TRUE(std::isinf(held_as<T>(f.largest * (1 + 2 * f.unit_roundoff())))) << name_of(t);
    });
  }
}

TEST(AccumulateStudy, ThousandTimesAHundredth) {
  const RunningSumReport r = running_sum_study({});
  EXPECT_EQ(static_cast<float>(sum_of(r, DType::f32, DType::f32)), 10.0001335f);
  EXPECT_EQ(sum_of(r, DType::f16, DType::f16), 9.953125);
  EXPECT_EQ(static_cast<float>(sum_of(r, DType::f32, DType::f16)), 10.0021362f);
  EXPECT_EQ(static_cast<float>(sum_of(r, DType::f32, DType::f16, SumMethod::converted)), 10.0021362f);
  EXPECT_EQ(sum_of(r, DType::bf16, DType::bf16), 4.0);
  EXPECT_EQ(static_cast<float>(sum_of(r, DType::f32, DType::bf16)), 10.009766f);
  EXPECT_EQ(r.exact, 10);
}

TEST(AccumulateStudy, SaysWhatLimitsEachSum) {
  const RunningSumReport r = running_sum_study({});
  EXPECT_EQ(find(r, DType::f32, DType::f32, SumMethod::plain).limit, SumLimit::spacing);
  EXPECT_EQ(find(r, DType::f32, DType::f16, SumMethod::plain).limit, SumLimit::value);
  const RunningSumRow& stalled = find(r, DType::bf16, DType::bf16, SumMethod::plain);
  EXPECT_EQ(stalled.limit, SumLimit::stalls);
  EXPECT_EQ(*stalled.stalls_at, 4);
  EXPECT_LT(stalled.increment, stalled.spacing / 2);
  const RunningSumRow& exact = find(r, DType::f32, DType::bf16, SumMethod::plain);
  EXPECT_EQ(std::abs(exact.error), exact.floor);
  const RunningSumReport large = running_sum_study({.count = 100, .value = 1000, .runs = 2});
  EXPECT_EQ(find(large, DType::f16, DType::f16, SumMethod::plain).limit, SumLimit::range);
  EXPECT_EQ(find(large, DType::f16, DType::f16, SumMethod::stochastic).limit, SumLimit::range);
}

// Predicted by powers of two, found by adding: the same bits.
TEST(AccumulateStudy, PredictsEveryPlainSum) {
  for (double value : {0.01, 1.0, 0.5, 3.0, 0.1, 1e-6, 0.0009765625, 7.77, 1234.5, 65504.0}) {
    for (int64_t count : {1, 2, 3, 100, 1000, 4099, 20011}) {
      const RunningSumReport r = running_sum_study({.count = count, .value = value, .runs = 2});
      for (const RunningSumRow& row : r.rows) {
        if (row.method == SumMethod::kahan || row.method == SumMethod::stochastic) continue;
        EXPECT_EQ(row.predicted, row.sum)
            << name_of(row.accumulator) << " += " << name_of(row.added) << ", " << count << " x " << value;
        if (row.limit == SumLimit::range) continue;
        int64_t additions = 0;
        double from = 0;
        for (const Binade& b : row.binades) {
          EXPECT_GT(b.from, from);
          from = b.from;
          additions += b.count;
        }
        EXPECT_EQ(additions, count);
      }
    }
  }
}

TEST(AccumulateStudy, FollowsCountAndValue) {
  const RunningSumReport fewer = running_sum_study({.count = 100});
  EXPECT_NEAR(sum_of(fewer, DType::f32, DType::f32), 1, 1e-5);
  EXPECT_EQ(fewer.exact, 1);
  const RunningSumReport more = running_sum_study({.count = 5000});
  EXPECT_EQ(sum_of(more, DType::bf16, DType::bf16), 4.0);  // it stalls at 4
  EXPECT_NEAR(sum_of(more, DType::f16, DType::f16), 32, 0.01);
  const RunningSumReport ones = running_sum_study({.count = 300, .value = 1});
  EXPECT_EQ(sum_of(ones, DType::bf16, DType::bf16), 256);  // where the spacing becomes 2
  EXPECT_EQ(sum_of(ones, DType::f16, DType::f16), 300);
  EXPECT_EQ(find(ones, DType::f16, DType::f16, SumMethod::plain).floor, 0);
}

TEST(AccumulateStudy, KahanStaysWithinItsBound) {
  for (double value : {0.01, 0.3, 1.0, 12.0}) {
    for (int64_t count : {7, 1000, 4099}) {
      const RunningSumReport r = running_sum_study({.count = count, .value = value, .runs = 2});
      for (DType t : {DType::f16, DType::bf16}) {
        const RunningSumRow& row = find(r, t, t, SumMethod::kahan);
        EXPECT_LE(std::abs(row.sum - row.predicted), row.bound)
            << name_of(t) << " " << count << " x " << value;
      }
    }
  }
  const RunningSumReport r = running_sum_study({});
  EXPECT_LE(std::abs(sum_of(r, DType::bf16, DType::bf16, SumMethod::kahan) - 10.009765625), 0.0625);
}

TEST(AccumulateStudy, StochasticRoundingIsRightOnAverage) {
  for (uint64_t seed : {0, 1, 2}) {
    const RunningSumReport r = running_sum_study({.runs = 64, .seed = seed});
    for (DType t : {DType::f16, DType::bf16}) {
      const RunningSumRow& row = find(r, t, t, SumMethod::stochastic);
      EXPECT_LE(std::abs(row.sum - row.predicted), row.bound) << name_of(t);
      EXPECT_GT(row.spread, 0.7 * row.predicted_spread) << name_of(t);
      EXPECT_LT(row.spread, 1.4 * row.predicted_spread) << name_of(t);
    }
  }
  const auto mean = [](uint64_t seed) {
    return sum_of(running_sum_study({.seed = seed}), DType::bf16, DType::bf16, SumMethod::stochastic);
  };
  EXPECT_EQ(mean(3), mean(3));
  EXPECT_NE(mean(3), mean(4));
}

}  // namespace
}  // namespace kiln
