#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

namespace kiln {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// RFC 3720, B.4, and the usual check value.
TEST(Crc32c, KnownVectors) {
  std::vector<std::byte> up(32), down(32);
  for (int i = 0; i < 32; ++i) up[i] = std::byte(i), down[i] = std::byte(31 - i);
  const std::vector<std::byte> zeros(32), ones(32, std::byte{0xff});
  for (const auto way : {crc32c, crc32c_by_table, crc32c_by_instruction}) {
    if (way == crc32c_by_instruction && !crc32c_has_instruction()) continue;
    EXPECT_EQ(way(bytes_of("123456789"), 0), 0xe3069283U);
    EXPECT_EQ(way(zeros, 0), 0x8a9136aaU);
    EXPECT_EQ(way(ones, 0), 0x62a8ab43U);
    EXPECT_EQ(way(up, 0), 0x46dd794eU);
    EXPECT_EQ(way(down, 0), 0x113fdb5cU);
    EXPECT_EQ(way({}, 0), 0U);
    EXPECT_EQ(way({}, 0x12345678), 0x12345678U);
  }
}

TEST(Crc32c, BothWaysAgreeAtEveryLengthAndAlignment) {
  if (!crc32c_has_instruction()) GTEST_SKIP() << "this CPU has no such instruction";
  std::mt19937 random(1);
  std::vector<std::byte> data(300);
  for (std::byte& b : data) b = static_cast<std::byte>(random());
  for (std::size_t from = 0; from < 9; ++from) {
    for (std::size_t size = 0; from + size <= data.size(); ++size) {
      const auto piece = std::span(data).subspan(from, size);
      ASSERT_EQ(crc32c_by_table(piece), crc32c_by_instruction(piece)) << from << " " << size;
    }
  }
}

TEST(Crc32c, PiecesGoOnWhereTheLastOneStopped) {
  const auto text = bytes_of("the checksum of a tensor that came in chunks");
  for (std::size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(crc32c(text.subspan(cut), crc32c(text.first(cut))), crc32c(text));
}

TEST(Crc32c, TwoPiecesAreJoinedFromTheirChecksums) {
  std::vector<std::byte> bytes(5000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i * 31 + 7);
  const std::span<const std::byte> all(bytes);
  for (const std::size_t cut : {0, 1, 7, 8, 63, 64, 1000, 4097, 4999, 5000})
    EXPECT_EQ(crc32c_joined(crc32c(all.first(cut)), crc32c(all.subspan(cut)), bytes.size() - cut),
              crc32c(all));
  // Longer than any memory: x^8 to that power by squaring, against one more byte of zero.
  const std::byte zero[1] = {};
  const uint64_t many = (uint64_t{1} << 40) + 12345;
  const uint32_t zeros = crc32c_joined(crc32c(all), 0, many);
  EXPECT_EQ(crc32c_joined(zeros, 0, 1), crc32c_joined(crc32c(all), 0, many + 1));
  EXPECT_EQ(crc32c_joined(crc32c(all), crc32c(zero), 1), crc32c(zero, crc32c(all)));
}

TEST(Crc32c, EveryFlippedBitShows) {
  std::vector<std::byte> data(64, std::byte{0x5a});
  const uint32_t whole = crc32c(data);
  for (std::size_t bit = 0; bit < data.size() * 8; ++bit) {
    data[bit / 8] ^= std::byte(1 << (bit % 8));
    EXPECT_NE(crc32c(data), whole);
    data[bit / 8] ^= std::byte(1 << (bit % 8));
  }
}

}  // namespace
}  // namespace kiln
