// Both 16-bit formats against a reference that knows only their definition (exponent width, mantissa width)
// and computes in double: every pattern, every midpoint between neighbours and its two float neighbours, and
// random floats.
#include "base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace kiln {
namespace {

struct Format {
  int mantissa_bits;
  int bias;  // the smallest normal is 2^(1 - bias), the largest exponent is `bias`
};

struct Bf16Format {
  using Type = bf16;
  static constexpr Format kFormat{7, 127};
};
struct Fp16Format {
  using Type = fp16;
  static constexpr Format kFormat{10, 15};
};

double decode(Format f, uint16_t bits) {
  const int exponent = (bits & 0x7fff) >> f.mantissa_bits;
  const int mantissa = bits & ((1 << f.mantissa_bits) - 1);
  double v;
  if (exponent == 2 * f.bias + 1) {
    v = mantissa == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    v = std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits);
  } else {
    v = std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - f.bias - f.mantissa_bits);
  }
  return (bits & 0x8000) != 0 ? -v : v;
}

// The value that x rounds to, nearest even.
double round_to(Format f, double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), 1 - f.bias);
  const double quantum = std::ldexp(1.0, exponent - f.mantissa_bits);
  const double rounded = std::nearbyint(x / quantum) * quantum;  // the division is exact
  if (std::fabs(rounded) >= std::ldexp(1.0, f.bias + 1)) return std::copysign(INFINITY, x);
  return rounded;
}

template <class F>
class Half : public testing::Test {
 protected:
  using T = typename F::Type;

  static void expect_rounds(float f) {
    const T h(f);
    const double got = decode(F::kFormat, h.bits);
    if (std::isnan(f)) {
      ASSERT_TRUE(std::isnan(got)) << std::hex << float_bits(f);
      ASSERT_TRUE(std::isnan(static_cast<float>(h))) << std::hex << float_bits(f);
      return;
    }
    const double wanted = round_to(F::kFormat, f);
    ASSERT_EQ(got, wanted) << std::hexfloat << f;
    ASSERT_EQ(std::signbit(got), std::signbit(f)) << std::hexfloat << f;
  }
};
using Formats = testing::Types<Bf16Format, Fp16Format>;
TYPED_TEST_SUITE(Half, Formats);

TYPED_TEST(Half, EveryPatternDecodesAndComesBack) {
  for (uint32_t p = 0; p < 65536; ++p) {
    typename TypeParam::Type h;
    h.bits = static_cast<uint16_t>(p);
    const float f = static_cast<float>(h);
    const double wanted = decode(TypeParam::kFormat, h.bits);
    const typename TypeParam::Type back(f);
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(f)) << std::hex << p;
      ASSERT_TRUE(std::isnan(decode(TypeParam::kFormat, back.bits))) << std::hex << p;
      continue;
    }
    ASSERT_EQ(static_cast<double>(f), wanted) << std::hex << p;
    ASSERT_EQ(std::signbit(f), std::signbit(wanted)) << std::hex << p;
    ASSERT_EQ(back.bits, p) << std::hex << p;
  }
}

TYPED_TEST(Half, EveryMidpointGoesToTheEvenNeighbour) {
  constexpr Format kFormat = TypeParam::kFormat;
  const uint16_t infinity = static_cast<uint16_t>((2 * kFormat.bias + 1) << kFormat.mantissa_bits);
  for (uint32_t p = 0; p < infinity; ++p) {  // p + 1 is the next larger magnitude; at the end, infinity
    const double low = decode(kFormat, static_cast<uint16_t>(p));
    const double high =
        p + 1 == infinity ? std::ldexp(1.0, kFormat.bias + 1) : decode(kFormat, static_cast<uint16_t>(p + 1));
    const float middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(static_cast<double>(middle), (low + high) / 2);
    const uint32_t even = p + (p & 1);
    using T = typename TypeParam::Type;
    ASSERT_EQ(T(middle).bits, even) << std::hex << p;
    ASSERT_EQ(T(std::nextafter(middle, 0.0f)).bits, p) << std::hex << p;
    ASSERT_EQ(T(std::nextafter(middle, INFINITY)).bits, p + 1) << std::hex << p;
    ASSERT_EQ(T(-middle).bits, even | 0x8000) << std::hex << p;
  }
}

TYPED_TEST(Half, RandomAndBoundaryFloatsRoundToNearestEven) {
  std::mt19937 gen(1);
  for (int i = 0; i < 1000000; ++i) this->expect_rounds(bits_float(gen()));
  // All exponents get few draws in any one format's range: more around 1 and in fp16's subnormals.
  for (int i = 0; i < 1000000; ++i) {
    const uint32_t exponent = 100 + gen() % 48;
    this->expect_rounds(bits_float((gen() & 0x807fffffu) | exponent << 23));
  }
  const float edges[] = {0.0f,
                         -0.0f,
                         FLT_MIN,
                         FLT_TRUE_MIN,
                         -FLT_TRUE_MIN,
                         FLT_MAX,
                         -FLT_MAX,
                         INFINITY,
                         -INFINITY,
                         65504.0f,
                         65519.996f,
                         65520.0f,
                         0x1p-14f,
                         0x1p-24f,
                         0x1p-25f,
                         0x1.000002p-25f,
                         std::numeric_limits<float>::quiet_NaN(),
                         std::numeric_limits<float>::signaling_NaN(),
                         bits_float(0x7fffffffu),
                         bits_float(0xffffffffu),
                         bits_float(0x7f800001u),
                         bits_float(0xff800001u)};
  for (float f : edges) this->expect_rounds(f);
}

void expect_splits(float f) {
  const SplitFloat s = split_float(f);
  const float back = join_float(s.high, s.low);
  ASSERT_EQ(float_bits(back), float_bits(f)) << std::hexfloat << f;
  const bool tie = (float_bits(f) & 0xffffu) == 0x8000u;
  if (!tie) {
    ASSERT_EQ(s.high.bits, bf16(f).bits) << std::hexfloat << f;
  } else {  // away from zero
    ASSERT_EQ(s.high.bits, (float_bits(f) >> 16) + 1) << std::hexfloat << f;
  }
}

TEST(SplitFloat, IsExactAndItsHighHalfIsTheNearestBf16) {
  std::mt19937 gen(2);
  for (int i = 0; i < 1000000; ++i) {
    const float f = bits_float(gen());
    if (!std::isnan(f)) expect_splits(f);
  }
  for (uint32_t high = 0; high < 0x7f80u; ++high) {  // ties and their neighbours, both signs
    for (uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      expect_splits(bits_float(high << 16 | low));
      expect_splits(bits_float(0x80000000u | high << 16 | low));
    }
  }
}

TEST(SplitFloat, KeepsInfinitiesZerosAndTheirSigns) {
  for (float f : {INFINITY, -INFINITY, 0.0f, -0.0f, FLT_TRUE_MIN, -FLT_TRUE_MIN}) {
    const SplitFloat s = split_float(f);
    EXPECT_EQ(float_bits(join_float(s.high, s.low)), float_bits(f));
    EXPECT_EQ(s.high.bits, bf16(f).bits);
  }
}

// 0x7fffffff is the NaN a GPU makes: its compute copy must not look like a number.
TEST(SplitFloat, NanStaysNanInBothHalves) {
  std::mt19937 gen(3);
  std::vector<uint32_t> nans = {0x7fffffffu, 0xffffffffu, 0x7fc00000u, 0xffc00000u,
                                0x7f800001u, 0xff800001u, 0x7fff8000u, 0xffff7fffu};
  for (int i = 0; i < 10000; ++i) nans.push_back(gen() | 0x7f800001u);
  for (uint32_t u : nans) {
    const SplitFloat s = split_float(bits_float(u));
    ASSERT_TRUE(std::isnan(static_cast<float>(s.high))) << std::hex << u;
    ASSERT_TRUE(std::isnan(join_float(s.high, s.low))) << std::hex << u;
  }
}

}  // namespace
}  // namespace kiln
