// CRC-32C (Castagnoli): the checksum of tensors on disk. The CPU's own instruction where there is one, a
// table elsewhere; both give the same number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kiln {

// `before` is the checksum of what came before: crc32c(b, crc32c(a)) is that of a and b in one piece.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

// The checksum of a and b in one piece from those of each: crc32c_joined(crc32c(a), crc32c(b), b.size()).
uint32_t crc32c_joined(uint32_t a, uint32_t b, uint64_t bytes_of_b);

// The two ways, for tests. The instruction's answers nothing sensible where crc32c_has_instruction() is
// false.
uint32_t crc32c_by_table(std::span<const std::byte> bytes, uint32_t before = 0);
uint32_t crc32c_by_instruction(std::span<const std::byte> bytes, uint32_t before = 0);
bool crc32c_has_instruction();

}  // namespace kiln
