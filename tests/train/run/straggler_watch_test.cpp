// Who is slow, from what every rank has measured of itself.
#include "train/run/straggler_watch.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(StragglerWatch, TimeInCollectivesIsSplitIntoTransferAndWait) {
  // 10 steps; the second rank came last to every collective.
  const auto ranks = split_steps({400, 400}, {250, 50}, 10);
  EXPECT_DOUBLE_EQ(ranks[0].compute_ms, 15);
  EXPECT_DOUBLE_EQ(ranks[0].comm_ms, 5);
  EXPECT_DOUBLE_EQ(ranks[0].wait_ms, 20);
  EXPECT_DOUBLE_EQ(ranks[1].compute_ms, 35);
  EXPECT_DOUBLE_EQ(ranks[1].comm_ms, 5);
  EXPECT_DOUBLE_EQ(ranks[1].wait_ms, 0);
}

TEST(StragglerWatch, OnlyARankFarFromTheOthersIsSlow) {
  EXPECT_EQ(slow_rank({10, 31}), 1);
  EXPECT_EQ(slow_rank({31, 10, 11, 10}), 0);
  EXPECT_EQ(slow_rank({10, 14}), std::nullopt) << "less than half as long again";
  EXPECT_EQ(slow_rank({0.1, 0.9}), std::nullopt) << "less than a millisecond";
  EXPECT_EQ(slow_rank({10, 31, 30, 30}), std::nullopt) << "one fast rank is no reason";
  EXPECT_EQ(slow_rank({10}), std::nullopt);
}

}  // namespace
}  // namespace kiln
