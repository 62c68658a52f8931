// Thousands of random functions, compiled, against the same functions as ops: in fp64, where the two must
// agree to rounding, and in fp32 and bf16 by the error rule: at most twice as far from fp64 as the ops are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compile/random_region.h"

namespace kiln {
namespace {

RankOptions threads(int n, std::optional<CpuIsa> isa = {}) {
  RankOptions o;
  o.threads = n;
  o.cpu_isa = isa;
  return o;
}

// Of a vector, relative to its own size, or to a hundredth where it is smaller: gradients that cancel have
// none. NaN where either has one and the other has not.
double error(const std::vector<double>& a, const std::vector<double>& exact) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(exact[i])) continue;
    difference += (a[i] - exact[i]) * (a[i] - exact[i]);
    size += exact[i] * exact[i];
  }
  return std::sqrt(difference / std::max(size, 1e-4 * static_cast<double>(exact.size())));
}

constexpr uint64_t kSeeds = 1500;

TEST(RandomRegions, InFp64TheyAreTheOps) {
  RankContext ctx(threads(1));
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const RandomRegion r(seed);
    const RegionResult ops = run_random(ctx, r, DType::f64, seed, false),
                       made = run_random(ctx, r, DType::f64, seed, true);
    ASSERT_EQ(made.names, ops.names) << "seed " << seed;
    for (std::size_t i = 0; i < ops.values.size(); ++i)
      ASSERT_LE(error(made.values[i], ops.values[i]), 1e-10) << ops.names[i] << " of seed " << seed;
  }
}

class RandomRegionsIn : public testing::TestWithParam<DType> {};

TEST_P(RandomRegionsIn, TheyAreAsNearToFp64AsTheOps) {
  RankContext ctx(threads(2));
  const double unit = GetParam() == DType::f32 ? 6e-8 : 4e-3;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const RandomRegion r(seed);
    const RegionResult exact = run_random(ctx, r, DType::f64, seed, false);
    const RegionResult ops = run_random(ctx, r, GetParam(), seed, false),
                       made = run_random(ctx, r, GetParam(), seed, true);
    ASSERT_EQ(made.names, exact.names) << "seed " << seed;
    for (std::size_t i = 0; i < ops.values.size(); ++i) {
      const double of_ops = error(ops.values[i], exact.values[i]),
                   own = error(made.values[i], exact.values[i]);
      ASSERT_LE(own, 2 * of_ops + 8 * unit)
          << exact.names[i] << " of seed " << seed << "; the ops' error is " << of_ops;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, RandomRegionsIn, testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& p) { return std::string(name_of(p.param)); });

TEST(RandomRegions, ThreadsMakeNoDifference) {
  RankContext one(threads(1)), three(threads(3));
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const RandomRegion r(seed);
    ASSERT_EQ(run_random(one, r, DType::f32, seed, true).values,
              run_random(three, r, DType::f32, seed, true).values)
        << "seed " << seed;
  }
}

// The instruction sets differ in the order of a row's sum, and the plain one in its multiply-adds.
TEST(RandomRegions, EveryInstructionSetComputesThem) {
  RankContext best(threads(1));
  for (const CpuIsa isa : {CpuIsa::plain, CpuIsa::avx2}) {
    if (best.traits().isa < isa) continue;
    RankContext ctx(threads(1, isa));
    for (uint64_t seed = 0; seed < 300; ++seed) {
      const RandomRegion r(seed);
      const RegionResult exact = run_random(best, r, DType::f64, seed, false);
      const RegionResult a = run_random(best, r, DType::f32, seed, true),
                         b = run_random(ctx, r, DType::f32, seed, true);
      for (std::size_t i = 0; i < a.values.size(); ++i)
        ASSERT_LE(error(b.values[i], exact.values[i]), 4 * error(a.values[i], exact.values[i]) + 1e-6)
            << exact.names[i] << " of seed " << seed;
    }
  }
}

}  // namespace
}  // namespace kiln
