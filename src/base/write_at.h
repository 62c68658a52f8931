// All of `bytes` into an open file at `offset`, whatever the kernel takes at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kiln {

// False, with errno, where it cannot; `offset` and `bytes` are then what is left to write.
bool write_at(int file, uint64_t& offset, std::span<const std::byte>& bytes);

}  // namespace kiln
