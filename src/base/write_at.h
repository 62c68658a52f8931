// All of `bytes` into an open file, at `offset` or at its end, whatever the kernel takes at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kiln {

// False, with errno, where it cannot; `offset` and `bytes` are then what is left to write.
bool write_at(int file, uint64_t& offset, std::span<const std::byte>& bytes);
// The same for a file opened with O_APPEND.
bool append_to(int file, std::string_view& text);

}  // namespace kiln
