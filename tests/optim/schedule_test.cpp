#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace kiln {
namespace {

TEST(LrSchedule, RisesInALineFallsAlongACosineAndStays) {
  const LrSchedule s{1e-3, 1e-4, 10, 110};
  EXPECT_DOUBLE_EQ(s.at(1), 1e-4);
  EXPECT_DOUBLE_EQ(s.at(5), 5e-4);
  EXPECT_DOUBLE_EQ(s.at(10), 1e-3);
  EXPECT_DOUBLE_EQ(s.at(60), 5.5e-4);  // half-way: half-way between peak and floor
  EXPECT_DOUBLE_EQ(s.at(35), 1e-4 + 9e-4 * 0.5 * (1 + std::sqrt(0.5)));  // a quarter: cos 45 degrees
  EXPECT_DOUBLE_EQ(s.at(110), 1e-4);
  EXPECT_DOUBLE_EQ(s.at(111), 1e-4);
  EXPECT_DOUBLE_EQ(s.at(1'000'000), 1e-4);
  for (int64_t step = 11; step < 110; ++step) EXPECT_LT(s.at(step + 1), s.at(step)) << step;
}

TEST(LrSchedule, WithoutWarmUpTheFirstStepIsJustBelowThePeak) {
  const LrSchedule s{1.0, 0.0, 0, 4};
  EXPECT_DOUBLE_EQ(s.at(1), 0.5 * (1 + std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(s.at(4), 0.0);
}

TEST(LrSchedule, WithoutADecayThePeakIsKept) {
  const LrSchedule s{1.0, 0.1, 2, 0};
  EXPECT_DOUBLE_EQ(s.at(1), 0.5);
  EXPECT_DOUBLE_EQ(s.at(2), 1.0);
  EXPECT_DOUBLE_EQ(s.at(1000), 1.0);
}

TEST(LrSchedule, OtherWaysDownAreRowsOfTheTable) {
  EXPECT_EQ(schedule_names(), (std::vector<std::string_view>{"cosine", "linear", "constant"}));
  const LrSchedule line{.peak = 1e-3, .floor = 1e-4, .warmup = 10, .decay_end = 110, .shape = "linear"};
  EXPECT_DOUBLE_EQ(line.at(5), 5e-4);
  EXPECT_DOUBLE_EQ(line.at(35), 1e-4 + 9e-4 * 0.75);
  EXPECT_DOUBLE_EQ(line.at(110), 1e-4);
  EXPECT_DOUBLE_EQ(line.at(1000), 1e-4);
  const LrSchedule flat{.peak = 1e-3, .floor = 1e-4, .warmup = 10, .decay_end = 110, .shape = "constant"};
  EXPECT_DOUBLE_EQ(flat.at(5), 5e-4);
  for (const int64_t step : {10, 60, 110, 1000}) EXPECT_DOUBLE_EQ(flat.at(step), 1e-3);
  EXPECT_THROW(check_schedule({.shape = "cosin"}), Error);
}

TEST(LrSchedule, RefusesNumbersThatCannotBe) {
  EXPECT_NO_THROW(check_schedule({1e-3, 1e-3, 0, 0}));
  EXPECT_THROW(check_schedule({0, 0, 0, 10}), Error);
  EXPECT_THROW(check_schedule({NAN, 0, 0, 10}), Error);
  EXPECT_THROW(check_schedule({1e-3, 2e-3, 0, 10}), Error);
  EXPECT_THROW(check_schedule({1e-3, -1, 0, 10}), Error);
  EXPECT_THROW(check_schedule({1e-3, 0, -1, 10}), Error);
}

}  // namespace
}  // namespace kiln
