#include "base/crc32c.h"

#include <nmmintrin.h>

#include <array>
#include <cstring>

namespace kiln {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // 0x1edc6f41 with its bits turned round

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[i] = crc;
  }
  return table;
}

constexpr auto kTable = make_table();

// Of polynomials over GF(2), modulo the checksum's. The highest bit is the coefficient of x^0.
uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; a != 0; a <<= 1) {
    if ((a & 0x80000000) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kPolynomial : 0);  // times x
  }
  return product;
}

}  // namespace

bool crc32c_has_instruction() {
  static const bool kHas = __builtin_cpu_supports("sse4.2") != 0;
  return kHas;
}

uint32_t crc32c_by_table(std::span<const std::byte> bytes, uint32_t before) {
  uint32_t crc = ~before;
  for (const std::byte b : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint32_t>(b)) & 0xff];
  return ~crc;
}

// One chain of 8 bytes in 3 cycles: about 7 GB/s at 2.6 GHz, several times what a disk takes.
__attribute__((target("sse4.2"))) uint32_t crc32c_by_instruction(std::span<const std::byte> bytes,
                                                                 uint32_t before) {
  uint64_t crc = ~before;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    crc = _mm_crc32_u64(crc, word);
  }
  auto tail = static_cast<uint32_t>(crc);
  for (; left > 0; --left, ++at) tail = _mm_crc32_u8(tail, static_cast<uint8_t>(*at));
  return ~tail;
}

// What comes behind a piece multiplies its checksum by x^8 for each byte.
uint32_t crc32c_joined(uint32_t a, uint32_t b, uint64_t bytes_of_b) {
  uint32_t factor = 0x80000000, power = 0x00800000;  // 1; x^8, squared from bit to bit of the length
  for (uint64_t n = bytes_of_b; n != 0; n >>= 1) {
    if ((n & 1) != 0) factor = multiply(factor, power);
    power = multiply(power, power);
  }
  return multiply(factor, a) ^ b;
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
  return crc32c_has_instruction() ? crc32c_by_instruction(bytes, before) : crc32c_by_table(bytes, before);
}

}  // namespace kiln
