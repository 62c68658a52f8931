#include "base/plain_number.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kiln {
namespace {

TEST(PlainNumber, HasNoExponentWhereAPersonWouldWriteNone) {
  EXPECT_EQ(plain(13610, 4), "13610");
  EXPECT_EQ(plain(13610.7, 4), "13611");
  EXPECT_EQ(plain(-123456, 3), "-123456");
  EXPECT_EQ(plain(999.7, 3), "1000");
  EXPECT_EQ(plain(0.00012345, 3), "0.000123");
  EXPECT_EQ(plain(1.5, 6), "1.5");
  EXPECT_EQ(plain(0), "0");
  EXPECT_EQ(plain(1e15, 3), "1e+15");
  EXPECT_EQ(plain(1.234e-7, 3), "1.23e-07");
  EXPECT_EQ(plain(INFINITY), "inf");
  EXPECT_EQ(plain(NAN), "nan");
}

TEST(PlainNumber, AValueIsNoFinerThanItsError) {
  EXPECT_EQ(with_error(733.21, 96), "733 +- 100");
  EXPECT_EQ(with_error(733.21, 100), "733 +- 100");
  EXPECT_EQ(with_error(9.95312, 0.0021), "9.953 +- 0.002");
  EXPECT_EQ(with_error(9.95312, 0.096), "10.0 +- 0.1");
  EXPECT_EQ(with_error(-4.5, 2.4), "-4 +- 2");
  EXPECT_EQ(with_error(0.5, 9.6), "0 +- 10");
  EXPECT_EQ(with_error(10, 0), "10.0000000");
  EXPECT_EQ(with_error(1.5e-20, 2e-21), "1.50000000e-20 +- 2e-21");
  EXPECT_EQ(with_error(1.5e9, 0), "1500000000");
  EXPECT_EQ(with_error(2, INFINITY), "2.00000000");
}

}  // namespace
}  // namespace kiln
