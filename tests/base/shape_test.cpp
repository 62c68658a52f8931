#include "base/shape.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace kiln {
namespace {

TEST(Shape, CountsElementsAndRows) {
  const Shape s{2, 3, 4};
  EXPECT_EQ(s.rank(), 3);
  EXPECT_EQ(s.numel(), 24);
  EXPECT_EQ(s.rows(), 6);
  EXPECT_EQ(s.last(), 4);
  EXPECT_EQ(s[0], 2);
  EXPECT_EQ(s[-1], 4);
  EXPECT_EQ(s[-3], 2);
  EXPECT_EQ(s.str(), "[2, 3, 4]");
}

TEST(Shape, AScalarHasOneElement) {
  const Shape s;
  EXPECT_EQ(s.rank(), 0);
  EXPECT_EQ(s.numel(), 1);
  EXPECT_EQ(s.rows(), 1);
  EXPECT_EQ(s.last(), 1);
  EXPECT_EQ(s.str(), "[]");
}

TEST(Shape, ZeroExtents) {
  EXPECT_EQ((Shape{0, 4}.numel()), 0);
  EXPECT_EQ((Shape{0, 4}.rows()), 0);
  EXPECT_EQ((Shape{4, 0}.numel()), 0);
  EXPECT_EQ((Shape{4, 0}.rows()), 0);
}

TEST(Shape, ComparesRankAndExtents) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2}), (Shape{2, 1}));
  EXPECT_NE(Shape{}, Shape{1});
}

TEST(Shape, WithLastReplacesTheLastExtentOfACopy) {
  const Shape s{2, 3};
  EXPECT_EQ(s.with_last(7), (Shape{2, 7}));
  EXPECT_EQ(s, (Shape{2, 3}));
  EXPECT_THROW(s.with_last(-1), Error);
  EXPECT_THROW(Shape{}.with_last(2), Error);  // a scalar has no last axis
}

TEST(Shape, HoldsFiveAxesAndSaysSo) {
  Shape s{1, 2, 3, 4, 5};
  EXPECT_EQ(s.numel(), 120);
  EXPECT_THROW(s.push_back(6), Error);
  EXPECT_EQ(s.rank(), 5);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1}), Error);
}

TEST(Shape, RefusesNegativeExtents) {
  EXPECT_THROW((Shape{2, -1}), Error);
  EXPECT_THROW((Shape{INT64_MIN}), Error);
}

TEST(Shape, TooManyElementsIsAnErrorWithTheShape) {
  EXPECT_EQ((Shape{INT64_MAX}.numel()), INT64_MAX);
  const Shape s{int64_t{1} << 32, int64_t{1} << 31};
  try {
    s.numel();
    FAIL() << "2^63 elements were counted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(s.str()), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace kiln
