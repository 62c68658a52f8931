#include "perf/comm/link_fit.h"

#include <gtest/gtest.h>

#include <vector>

namespace kiln {
namespace {

TEST(LinkFit, FindsLatencyAndBandwidth) {
  std::vector<Point> points;
  for (double bytes : {1e3, 1e4, 1e6, 1e8, 1e9}) points.push_back({bytes, 20e-6 + bytes / 5e9});
  const auto f = fit_link(points);
  ASSERT_TRUE(f);
  EXPECT_NEAR(f->alpha, 20e-6, 1e-9);
  EXPECT_NEAR(1 / f->beta, 5e9, 1e4);
  EXPECT_NEAR(f->r_squared, 1, 1e-9);
  EXPECT_EQ(f->points, 5u);
  EXPECT_NEAR(f->half_bytes(), 1e5, 10);
  EXPECT_TRUE(f->latency_bound(5e4));
  EXPECT_FALSE(f->latency_bound(2e5));
  EXPECT_NEAR(f->bus_bandwidth(4), 7.5e9, 1e5);  // 2 (N-1)/N of the tensor crosses each wire
  EXPECT_NEAR(f->step_latency(4), 20e-6 / 6, 1e-9);
  EXPECT_EQ(f->bound_by(), "latency-bound below 97.66 KiB, bandwidth-bound above");
}

TEST(LinkFit, NoiseOfTheLargeSizesDoesNotDecideTheLatency) {
  const std::vector<Point> points = {{1e3, 21e-6}, {1e4, 22e-6}, {1e8, 0.024}, {1e9, 0.19}};
  const auto f = fit_link(points);
  ASSERT_TRUE(f);
  EXPECT_NEAR(f->alpha, 20e-6, 2e-6);
}

TEST(LinkFit, NeitherIsNegative) {
  const std::vector<Point> falling = {{1e3, 2e-3}, {1e6, 1e-3}}, steep = {{1e6, 1e-3}, {1e7, 1e-1}};
  EXPECT_EQ(fit_link(falling)->beta, 0);
  EXPECT_EQ(fit_link(falling)->bound_by(), "latency-bound at every size measured");
  EXPECT_EQ(fit_link(steep)->alpha, 0);
  EXPECT_EQ(fit_link(steep)->bound_by(), "bandwidth-bound at every size measured");
}

TEST(LinkFit, OneSizeTellsNothing) {
  const std::vector<Point> one = {{1e6, 1e-3}, {1e6, 2e-3}};
  EXPECT_FALSE(fit_link(one));
  EXPECT_FALSE(fit_link({}));
}

}  // namespace
}  // namespace kiln
