// The vectors all CPU kernels are written in, at every width this CPU has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#define KILN_SIMD_FILE "device/simd_cases.h"
#include "device/cpu/simd_each.h"

namespace kiln {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Simd : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (isa() > best_cpu_isa()) GTEST_SKIP() << "this CPU has no " << name_of(isa());
  }
  static CpuIsa isa() { return static_cast<CpuIsa>(GetParam()); }
};

// Distance in representable numbers; both finite and of one sign.
int64_t ulps(float a, float b) {
  return std::abs(static_cast<int64_t>(float_bits(a)) - static_cast<int64_t>(float_bits(b)));
}

TEST_P(Simd, ExpIsWithinTwoUlpsOverTheWholeRange) {
  std::vector<float> x;
  for (int64_t i = -104000; i <= 88700; ++i) x.push_back(static_cast<float>(i) * 1e-3f);
  for (int e = -126; e < 0; ++e) {  // around zero, where e^x is nearly 1
    x.push_back(std::ldexp(1.0f, e));
    x.push_back(-std::ldexp(1.0f, e));
  }
  std::vector<float> y(x.size());
  KILN_SIMD_PICK(isa(), exp_all)(x.data(), y.data(), static_cast<int64_t>(x.size()));
  int64_t worst = 0;
  float where = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto wanted = static_cast<float>(std::exp(static_cast<double>(x[i])));
    if (ulps(y[i], wanted) > worst) worst = ulps(y[i], wanted), where = x[i];
  }
  EXPECT_LE(worst, 2) << "at " << where;
}

TEST_P(Simd, ExpAtTheEnds) {
  const std::vector<float> x = {kInf, -kInf, 0, -0.0f, 89, 1e30f, -105, -1e30f, kNan, 1};
  std::vector<float> y(x.size());
  KILN_SIMD_PICK(isa(), exp_all)(x.data(), y.data(), static_cast<int64_t>(x.size()));
  EXPECT_EQ(y[0], kInf);
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], 1);
  EXPECT_EQ(y[3], 1);
  EXPECT_EQ(y[4], kInf);
  EXPECT_EQ(y[5], kInf);
  EXPECT_EQ(y[6], 0);
  EXPECT_EQ(y[7], 0);
  EXPECT_TRUE(std::isnan(y[8]));
  EXPECT_NEAR(y[9], 2.718281828, 3e-7);
}

// All 65536 bit patterns: widened as the plain conversion does, and back to the same bits.
template <class T>
void expect_round_trip(CpuIsa isa) {
  std::vector<T> all(65536), back(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
  std::vector<float> wide(all.size());
  KILN_SIMD_PICK(isa, to_float<T>)(all.data(), wide.data(), 65536);
  KILN_SIMD_PICK(isa, from_float<T>)(wide.data(), back.data(), 65536);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const float plain = static_cast<float>(all[i]);
    if (std::isnan(plain)) {
      ASSERT_TRUE(std::isnan(wide[i]) && std::isnan(static_cast<float>(back[i]))) << i;
    } else {
      ASSERT_EQ(float_bits(wide[i]), float_bits(plain)) << i;
      ASSERT_EQ(back[i].bits, all[i].bits) << i;
    }
  }
}

TEST_P(Simd, HalfFormatsSurviveTheRoundTrip) {
  expect_round_trip<bf16>(isa());
  expect_round_trip<fp16>(isa());
}

// Numbers between representable ones, halfway ones, and those that overflow: as the plain conversion rounds.
template <class T>
void expect_rounds_like_plain(CpuIsa isa) {
  std::vector<float> x = {kInf, -kInf, 65504, 65519.99f, 65520, 70000, 3.4e38f, 1e-8f, 6e-8f, -0.0f};
  for (uint32_t i = 0; i < 200000; ++i) {
    const float f = bits_float(i * 21473u);
    if (!std::isnan(f)) x.push_back(f);
    const float tie = bits_float((i * 65536u) | (i % 2 == 0 ? 0x8000u : 0x1000u));
    if (!std::isnan(tie)) x.push_back(tie);
  }
  std::vector<T> y(x.size());
  KILN_SIMD_PICK(isa, from_float<T>)(x.data(), y.data(), static_cast<int64_t>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i].bits, T(x[i]).bits) << x[i];
  const float nan = kNan;
  T one;
  KILN_SIMD_PICK(isa, from_float<T>)(&nan, &one, 1);
  EXPECT_TRUE(std::isnan(static_cast<float>(one)));
}

TEST_P(Simd, StoresRoundToNearestEven) {
  expect_rounds_like_plain<bf16>(isa());
  expect_rounds_like_plain<fp16>(isa());
}

// A partial vector reads no element past the end and writes none.
template <class T>
void expect_partial(CpuIsa isa) {
  for (int64_t n = 0; n <= 35; ++n) {
    std::vector<T> x(static_cast<std::size_t>(n));  // its own allocation: sanitizers see a read past it
    std::vector<float> wide(static_cast<std::size_t>(n) + 1, -7.0f);
    for (int64_t i = 0; i < n; ++i) x[i] = T(static_cast<float>(i + 1));
    KILN_SIMD_PICK(isa, to_float<T>)(x.data(), wide.data(), n);
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(wide[i], static_cast<float>(i + 1));
    EXPECT_EQ(wide[n], -7.0f) << n;
    std::vector<T> back(static_cast<std::size_t>(n) + 1, T(-7.0f));
    KILN_SIMD_PICK(isa, from_float<T>)(wide.data(), back.data(), n);
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(static_cast<float>(back[i]), static_cast<float>(i + 1));
    EXPECT_EQ(static_cast<float>(back[n]), -7.0f) << n;
  }
}

TEST_P(Simd, PartialVectorsStayInside) {
  expect_partial<float>(isa());
  expect_partial<bf16>(isa());
  expect_partial<fp16>(isa());
}

TEST_P(Simd, SumsAndMaxima) {
  for (int64_t n : {0, 1, 3, 15, 16, 17, 63, 64, 65, 127, 1031}) {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(i + 1);
    EXPECT_EQ(KILN_SIMD_PICK(isa(), sum_all)(x.data(), n), static_cast<float>(n * (n + 1)) / 2) << n;
  }
  const int width = KILN_SIMD_PICK(isa(), width)();
  std::vector<float> x(static_cast<std::size_t>(width));
  for (int i = 0; i < width; ++i) {
    std::fill(x.begin(), x.end(), -3.0f);
    x[i] = 5;
    EXPECT_EQ(KILN_SIMD_PICK(isa(), top_of)(x.data()), 5.0f) << i;
    EXPECT_EQ(KILN_SIMD_PICK(isa(), sum_kept)(x.data(), i), -3.0f * static_cast<float>(i));
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Simd, testing::Range(0, kCpuIsaCount),
                         [](const testing::TestParamInfo<int>& info) {
                           return std::string(name_of(static_cast<CpuIsa>(info.param)));
                         });

}  // namespace
}  // namespace kiln
