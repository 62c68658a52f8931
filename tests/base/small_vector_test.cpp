#include "base/small_vector.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>

namespace kiln {
namespace {

TEST(SmallVector, FillsInOrderAndIterates) {
  SmallVector<int, 4> v;
  EXPECT_TRUE(v.empty());
  for (int i = 1; i <= 4; ++i) v.push_back(10 * i);
  EXPECT_FALSE(v.empty());
  EXPECT_EQ(v.size(), 4);
  EXPECT_EQ(v[0], 10);
  EXPECT_EQ(v[3], 40);
  EXPECT_EQ(std::accumulate(v.begin(), v.end(), 0), 100);
  v[1] = 0;
  const SmallVector<int, 4>& same = v;
  EXPECT_EQ(std::accumulate(same.begin(), same.end(), 0), 80);
  EXPECT_EQ(same.span().size(), 4U);
  EXPECT_EQ(same.span()[3], 40);
}

TEST(SmallVector, FullIsAnErrorAndChangesNothing) {
  SmallVector<int, 2> v{1, 2};
  EXPECT_THROW(v.push_back(3), Error);
  EXPECT_EQ(v.size(), 2);
  EXPECT_EQ(v[1], 2);
  EXPECT_THROW((SmallVector<int, 2>{1, 2, 3}), Error);
}

TEST(SmallVector, CopiesAndFreesItsItems) {
  const auto item = std::make_shared<int>(1);
  {
    SmallVector<std::shared_ptr<int>, 3> a;
    a.push_back(item);
    SmallVector<std::shared_ptr<int>, 3> b = a;
    b.push_back(item);
    EXPECT_EQ(a.size(), 1);
    EXPECT_EQ(b.size(), 2);
    EXPECT_EQ(item.use_count(), 4);
  }
  EXPECT_EQ(item.use_count(), 1);
}

TEST(SmallVector, HoldsTypesThatOnlyMove) {
  SmallVector<std::unique_ptr<int>, 2> a;
  a.push_back(std::make_unique<int>(5));
  SmallVector<std::unique_ptr<int>, 2> b = std::move(a);
  ASSERT_EQ(b.size(), 1);
  EXPECT_EQ(*b[0], 5);
}

}  // namespace
}  // namespace kiln
