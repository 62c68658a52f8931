#include "base/units.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

TEST(Units, HumanPicksTheLargestUnitThatFits) {
  EXPECT_EQ(human({0}), "0 B");
  EXPECT_EQ(human({1023}), "1023 B");
  EXPECT_EQ(human({1024}), "1.00 KiB");
  EXPECT_EQ(human({1536}), "1.50 KiB");
  EXPECT_EQ(human({std::size_t{12} << 20 | std::size_t{1} << 19}), "12.50 MiB");
  EXPECT_EQ(human({std::size_t{3} << 30}), "3.00 GiB");
  EXPECT_EQ(human({std::size_t{5} << 40}), "5.00 TiB");
  EXPECT_EQ(human({SIZE_MAX}), "16384.00 PiB");
}

TEST(Units, BytesCompareAndAdd) {
  EXPECT_LT(Bytes{1}, Bytes{2});
  EXPECT_EQ(Bytes{1} + Bytes{2}, Bytes{3});
  EXPECT_GT(Elements{5}, Elements{-5});
}

TEST(Units, SizesAsTyped) {
  EXPECT_EQ(parse_bytes("1000", "x").value, 1000U);
  EXPECT_EQ(parse_bytes("5GB", "x").value, 5'000'000'000U);
  EXPECT_EQ(parse_bytes("512 MiB", "x").value, std::size_t{512} << 20);
  EXPECT_EQ(parse_bytes("0B", "x").value, 0U);
  for (const char* wrong :
       {"", "GB", "-1", "5gb", "5 GBs", "1.5GB", "18446744073709551616", "99999999999TB"}) {
    EXPECT_EQ(KILN_ERROR_OF(parse_bytes(wrong, "--max")),
              cat("--max is '", wrong, "'; expected a size like 5GB, 512MiB or 1000000"));
  }
}

TEST(Units, RoundUp) {
  static_assert(round_up(0, 512) == 0);
  static_assert(round_up(1, 512) == 512);
  static_assert(round_up(512, 512) == 512);
  static_assert(round_up(513, 512) == 1024);
  EXPECT_EQ(round_up(10, 3), 12U);
}

}  // namespace
}  // namespace kiln
