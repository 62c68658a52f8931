#include "studies/precision/sum_prediction.h"

#include <gtest/gtest.h>

#include <vector>

#include "studies/precision/running_sum_study.h"

namespace kiln {
namespace {

const FloatFormat kBf16 = format_of(DType::bf16), kFp16 = format_of(DType::f16);

TEST(RunningSum, RoundsAsTheDtypeDoes) {
  PlainSum<bf16> plain;
  for (int i = 0; i < 300; ++i) plain.add(1);
  EXPECT_EQ(plain.value(), 256);  // 257 is not a bf16 number, and 256 is the even neighbour
  KahanSum<bf16> kahan;
  for (int i = 0; i < 300; ++i) kahan.add(1);
  EXPECT_EQ(kahan.value() - kahan.lost(), 300);
  EXPECT_NEAR(kahan.value(), 300, 2);
  double mean = 0;
  for (uint64_t run = 0; run < 64; ++run) {
    StochasticSum<bf16> sum(philox_key(run, "a test"));
    for (int i = 0; i < 300; ++i) sum.add(1);
    mean += sum.value() / 64;
  }
  EXPECT_NEAR(mean, 300, 4);  // 44 additions of variance 1 / 4 at most, 64 runs: 0.4 is one deviation
  EXPECT_EQ(static_cast<float>(round_stochastic<fp16>(1 + 0x1p-12, 0)), 1 + 0x1p-10);
  EXPECT_EQ(static_cast<float>(round_stochastic<fp16>(1 + 0x1p-12, 0xffffffffu)), 1);
  EXPECT_EQ(static_cast<float>(round_stochastic<bf16>(-3, 0)), -3);
}

// Summands of one size: what the walk over binades finds exactly.
TEST(SumPrediction, ASumThatStallsIsPredicted) {
  const std::vector<double> ones(1000, 1.0);
  const SumPrediction f = predict_sum(ones, kBf16, SumMethod::plain);
  EXPECT_NEAR(1000 + f.bias, 256, 4);
  EXPECT_GE(f.worst, -f.bias / 2);
  const std::vector<double> few(200, 1.0);
  EXPECT_EQ(predict_sum(few, kBf16, SumMethod::plain).bias, 0);
  EXPECT_EQ(predict_sum(few, kBf16, SumMethod::plain).variance, 0);
  for (double x : {0.01, 0.3, 0.7}) {
    const double held = held_as<fp16>(x);
    const std::vector<double> same(1000, held);
    const double right = predict_plain_sum(DType::f16, held, 1000).sum;
    EXPECT_NEAR(1000 * held + predict_sum(same, kFp16, SumMethod::plain).bias, right, 0.01 * right) << x;
  }
}

TEST(SumPrediction, MethodsHaveTheirErrors) {
  const std::vector<double> terms(512, 0.7);
  const SumPrediction plain = predict_sum(terms, kBf16, SumMethod::plain),
                      stochastic = predict_sum(terms, kBf16, SumMethod::stochastic),
                      kahan = predict_sum(terms, kBf16, SumMethod::kahan), tree = predict_tree(terms, kBf16);
  EXPECT_EQ(stochastic.bias, 0);
  EXPECT_GT(stochastic.variance, 0);
  EXPECT_GT(std::abs(plain.bias), std::sqrt(stochastic.variance));
  EXPECT_LT(kahan.variance, stochastic.variance);
  EXPECT_LT(tree.worst, plain.worst);
  EXPECT_EQ(predict_sum({}, kBf16, SumMethod::plain).worst, 0);
}

TEST(SumPrediction, TreesOfNumbersThatFitRoundNothing) {
  const std::vector<double> whole = {1, 2, 3, 4, 5};
  EXPECT_EQ(predict_tree(whole, kBf16).variance, 0);
  const std::vector<double> apart = {256, 1};
  EXPECT_DOUBLE_EQ(predict_tree(apart, kBf16).variance, 4.0 / 12);
  EXPECT_DOUBLE_EQ(predict_tree(apart, kBf16).worst, 1);
}

// x = 1 with a rate of 1/1024: in bf16 the average stops where the increment is under half a spacing.
TEST(AverageSumPrediction, StopsWhereTheLoopDoes) {
  for (int steps : {10, 700, 2000}) {
    bf16 loop(0.0f);
    double exact = 0;
    for (int i = 0; i < steps; ++i) {
      const auto s = static_cast<float>(loop);
      loop = bf16(s + (1 - s) / 1024);
      exact += (1 - exact) / 1024;
    }
    const std::vector<double> sample(8, 1.0);
    const SumPrediction f = predict_average(sample, 1.0 / 1024, steps, kBf16, SumMethod::plain).back();
    EXPECT_NEAR(exact + f.bias, static_cast<double>(static_cast<float>(loop)), 0.01 * exact) << steps;
  }
  const std::vector<double> sample(8, 1.0);
  const auto all = predict_average(sample, 1.0 / 1024, 5, kBf16, SumMethod::stochastic);
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all.back().bias, 0);
}

}  // namespace
}  // namespace kiln
