#include "base/rng.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace kiln {
namespace {

std::array<uint32_t, 4> words(const Philox4& p) { return {p.x, p.y, p.z, p.w}; }

// The three vectors of the Random123 distribution (tests/kat_vectors, "philox4x32 10").
TEST(Philox, KnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(words(philox({0, 0}, Philox4{0, 0, 0, 0})),
            (Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  constexpr uint32_t kOnes = 0xffffffffu;
  EXPECT_EQ(words(philox({kOnes, kOnes}, Philox4{kOnes, kOnes, kOnes, kOnes})),
            (Words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(
      words(philox({0xa4093822u, 0x299f31d0u}, Philox4{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u})),
      (Words{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(Philox, CounterIsIndexThenAttempt) {
  const PhiloxKey key{7, 9};
  EXPECT_EQ(words(philox({0, 0}, uint64_t{0}, 0)), words(philox({0, 0}, Philox4{0, 0, 0, 0})));
  EXPECT_EQ(words(philox(key, 0x0123456789abcdefu, 5)),
            words(philox(key, Philox4{0x89abcdefu, 0x01234567u, 5, 0})));
}

TEST(Philox, KeysOfNamesAndSeedsDiffer) {
  std::set<std::pair<uint32_t, uint32_t>> keys;
  std::vector<std::string> names = {"", "a", "b", "ab", "ba", "a.b", "model.embed_tokens.weight"};
  for (int i = 0; i < 100; ++i)
    names.push_back("model.layers." + std::to_string(i) + ".mlp.down_proj.weight");
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (const std::string& name : names) {
      const PhiloxKey k = philox_key(seed, name);
      keys.insert({k.lo, k.hi});
      EXPECT_EQ(k.lo, philox_key(seed, name).lo);
    }
  }
  EXPECT_EQ(keys.size(), 100 * names.size());
  EXPECT_NE(philox_key(1ull << 40, "a").lo, philox_key(0, "a").lo);  // all 64 bits of a seed count
}

// In units of the last place of the exact result.
double error_in_ulp(float got, double exact) {
  const double ulp = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
  return std::fabs(static_cast<double>(got) - exact) / ulp;
}

TEST(ExactMath, LogIsWithinThreeUlp) {
  double worst = 0;
  auto check = [&](float x) {
    if (x != 1.0f) worst = std::max(worst, error_in_ulp(exact::log(x), std::log(static_cast<double>(x))));
  };
  // The arguments normals use: (k + 1/2) 2^-23.
  auto u = [](uint32_t k) { return (static_cast<float>(k) + 0.5f) * 0x1p-23f; };
  for (uint32_t k = 0; k < 200000; ++k) check(u(k));
  for (uint32_t k = (1u << 23) - 200000; k < (1u << 23); ++k) check(u(k));
  std::mt19937 gen(4);
  for (int i = 0; i < 500000; ++i) check(u(gen() >> 9));
  for (int i = 0; i < 500000; ++i) check(bits_float(0x00800000u + gen() % (0x7f800000u - 0x00800000u)));
  EXPECT_LT(worst, 3.0);
  EXPECT_EQ(exact::log(1.0f), 0.0f);
}

TEST(ExactMath, SinAndCosAreWithinTwoUlp) {
  double worst_sin = 0, worst_cos = 0;
  for (int i = -500000; i <= 500000; ++i) {
    const float a = static_cast<float>(i) * (0.785398185f / 500000);
    if (i != 0) worst_sin = std::max(worst_sin, error_in_ulp(exact::sin_small(a), std::sin(double{a})));
    worst_cos = std::max(worst_cos, error_in_ulp(exact::cos_small(a), std::cos(double{a})));
  }
  EXPECT_LT(worst_sin, 2.0);
  EXPECT_LT(worst_cos, 2.0);
  EXPECT_EQ(exact::sin_small(0.0f), 0.0f);
  EXPECT_EQ(exact::cos_small(0.0f), 1.0f);
}

TEST(PhiloxNormal, IsBoxMullerOfItsBits) {
  const PhiloxKey key = philox_key(3, "box");
  for (uint64_t i = 0; i < 200000; ++i) {
    const Philox4 r = philox(key, i, 0);
    const double u = ((r.x >> 9) + 0.5) * 0x1p-23;
    const double quarter = (((r.y & 0x3fffffffu) >> 7) + 0.5) * 0x1p-23;
    const double radius = std::sqrt(-2 * std::log(u));
    const double turn = (quarter - 0.5 + (r.y >> 30)) * M_PI / 2;
    ASSERT_NEAR(philox_normal(key, i), radius * std::cos(turn), 4e-7 * radius) << i;
  }
}

double tail(double z) { return std::erfc(z / std::sqrt(2.0)); }  // P(|Z| > z)

TEST(PhiloxNormal, MomentsAndTailsOfAMillionDraws) {
  constexpr int kDraws = 1000000, kBins = 100;
  const PhiloxKey key = philox_key(42, "model.layers.0.mlp.down_proj.weight");
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0, lag = 0, previous = 0, largest = 0;
  std::array<int, 6> beyond{};
  std::array<int, kBins> bins{};
  for (int i = 0; i < kDraws; ++i) {
    const double z = philox_normal(key, static_cast<uint64_t>(i));
    m1 += z;
    m2 += z * z;
    m3 += z * z * z;
    m4 += z * z * z * z;
    lag += z * previous;
    previous = z;
    largest = std::max(largest, std::fabs(z));
    for (int k = 0; k < 6; ++k) beyond[k] += std::fabs(z) > k;
    const double p = 0.5 * std::erfc(-z / std::sqrt(2.0));
    ++bins[std::min(kBins - 1, static_cast<int>(p * kBins))];
  }
  const double n = kDraws, five_sigma = 5 / std::sqrt(n);
  EXPECT_NEAR(m1 / n, 0, five_sigma);
  EXPECT_NEAR(m2 / n, 1, five_sigma * std::sqrt(2.0));
  EXPECT_NEAR(m3 / n, 0, five_sigma * std::sqrt(15.0));
  EXPECT_NEAR(m4 / n, 3, five_sigma * std::sqrt(96.0));
  EXPECT_NEAR(lag / n, 0, five_sigma);
  for (int k = 1; k < 5; ++k) {
    const double p = tail(k);
    EXPECT_NEAR(beyond[k], n * p, 5 * std::sqrt(n * p * (1 - p))) << "beyond " << k << " sigma";
  }
  EXPECT_LE(largest, 5.9);
  double chi2 = 0;
  for (int count : bins) chi2 += std::pow(count - n / kBins, 2) / (n / kBins);
  EXPECT_LT(chi2, kBins - 1 + 5 * std::sqrt(2.0 * (kBins - 1)));
}

double correlation(PhiloxKey a, uint64_t shift_a, PhiloxKey b, uint64_t shift_b) {
  constexpr int kDraws = 200000;
  double sum = 0;
  for (uint64_t i = 0; i < kDraws; ++i)
    sum += static_cast<double>(philox_normal(a, i + shift_a)) * philox_normal(b, i + shift_b);
  return sum / kDraws;
}

TEST(PhiloxNormal, NamesSeedsAndIndicesAreIndependent) {
  const double five_sigma = 5 / std::sqrt(200000.0);
  const PhiloxKey key = philox_key(1, "model.layers.1.x");
  EXPECT_NEAR(correlation(key, 0, philox_key(1, "model.layers.2.x"), 0), 0, five_sigma);
  EXPECT_NEAR(correlation(key, 0, philox_key(2, "model.layers.1.x"), 0), 0, five_sigma);
  EXPECT_NEAR(correlation(key, 0, key, 1), 0, five_sigma);
  EXPECT_NEAR(correlation(key, 0, key, uint64_t{1} << 32), 0, five_sigma);
  EXPECT_NEAR(correlation(key, 0, key, 0), 1, five_sigma * std::sqrt(2.0));
}

TEST(PhiloxNormal, AttemptsAreIndependentDraws) {
  const PhiloxKey key = philox_key(1, "attempt");
  double sum = 0;
  for (uint64_t i = 0; i < 200000; ++i)
    sum += static_cast<double>(philox_normal(key, i, 0)) * philox_normal(key, i, 1);
  EXPECT_NEAR(sum / 200000, 0, 5 / std::sqrt(200000.0));
}

TEST(PhiloxTruncatedNormal, RespectsItsBoundAndKeepsWhatLiesWithin) {
  const PhiloxKey key = philox_key(5, "truncated");
  for (float bound : {3.0f, 2.0f, 1.0f, 0.25f}) {
    int redrawn = 0, near_edge = 0;
    for (uint64_t i = 0; i < 100000; ++i) {
      const float plain = philox_normal(key, i), z = philox_truncated_normal(key, i, bound);
      ASSERT_LE(std::fabs(z), bound) << i;
      if (std::fabs(plain) <= bound) {
        ASSERT_EQ(z, plain) << i;
      } else {
        ++redrawn;
        near_edge += std::fabs(z) > 0.99f * bound;
      }
    }
    const double p = tail(bound);
    EXPECT_NEAR(redrawn, 1e5 * p, 5 * std::sqrt(1e5 * p * (1 - p))) << bound;
    EXPECT_LT(near_edge, redrawn / 10 + 10) << "clamped instead of redrawn";
  }
}

// However unlikely the bound makes a draw, what comes back is within it.
TEST(PhiloxTruncatedNormal, RespectsAVeryNarrowBound) {
  const PhiloxKey key = philox_key(5, "narrow");
  for (uint64_t i = 0; i < 2000; ++i)
    ASSERT_LE(std::fabs(philox_truncated_normal(key, i, 1e-3f)), 1e-3f) << i;
}

}  // namespace
}  // namespace kiln
