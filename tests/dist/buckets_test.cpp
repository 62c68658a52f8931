// Which gradients share a collective, and who updates what: pure functions of sizes.
#include "dist/strategy/buckets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace kiln {
namespace {

using Sets = std::vector<std::vector<int>>;

TEST(Buckets, TheToyModelsSizesGiveTwoThreeAndOne) {
  const int64_t bytes[] = {1000, 2000, 400};  // 5x50, 50x10, 10x10 of fp32, in the order of backward
  EXPECT_EQ(assign_buckets(bytes, 0.0016e6), (Sets{{1}, {0, 2}}));  // the large one closes no bucket
  EXPECT_EQ(assign_buckets(bytes, 0.0001e6), (Sets{{0}, {1}, {2}}));
  EXPECT_EQ(assign_buckets(bytes, 0.01e6), (Sets{{0, 1, 2}}));
}

TEST(Buckets, EdgesOfTheCap) {
  const int64_t bytes[] = {4, 4, 4};
  EXPECT_EQ(assign_buckets(bytes, 0), (Sets{{0}, {1}, {2}}));
  EXPECT_EQ(assign_buckets(bytes, 7.9), (Sets{{0}, {1}, {2}}));
  EXPECT_EQ(assign_buckets(bytes, 8), (Sets{{0, 1}, {2}}));
  EXPECT_EQ(assign_buckets(bytes, std::numeric_limits<double>::infinity()), (Sets{{0, 1, 2}}));
  EXPECT_TRUE(assign_buckets({}, 8).empty());
}

TEST(Buckets, OfRandomSizesHoldEachTensorOnceAndNeverMoreThanTheCap) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> bytes(1 + random() % 40);
    for (int64_t& b : bytes) b = 1 + static_cast<int64_t>(random() % 1000);
    const double cap = static_cast<double>(random() % 1500);
    std::vector<int> seen;
    int last = -1;
    for (const std::vector<int>& bucket : assign_buckets(bytes, cap)) {
      int64_t sum = 0;
      for (const int i : bucket) sum += bytes[static_cast<std::size_t>(i)];
      EXPECT_TRUE(bucket.size() == 1 || static_cast<double>(sum) <= cap);
      EXPECT_TRUE(std::is_sorted(bucket.begin(), bucket.end()));
      EXPECT_GT(bucket.back(), last);  // in the order they become complete
      last = bucket.back();
      seen.insert(seen.end(), bucket.begin(), bucket.end());
    }
    std::sort(seen.begin(), seen.end());
    ASSERT_EQ(seen.size(), bytes.size());
    for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<int>(i));
  }
}

TEST(Owners, TheLeastLoadedRankGetsTheNext) {
  const int64_t sizes[] = {10, 3, 4, 9, 1};
  std::vector<int64_t> load(3);
  EXPECT_EQ(assign_owners(sizes, load), (std::vector<int>{0, 1, 2, 1, 2}));
  EXPECT_EQ(load, (std::vector<int64_t>{10, 12, 5}));
  const int64_t later[] = {6};
  EXPECT_EQ(assign_owners(later, load), (std::vector<int>{2}));
}

}  // namespace
}  // namespace kiln
