// The allocator's own records: segments taken from the device and the free blocks inside them.
#pragma once

#include <list>

#include "device/allocator.h"

namespace kiln {

inline constexpr std::size_t kBlockRounding =
    512;  // every size is a multiple: 16-byte accesses, whole sectors
inline constexpr std::size_t kSmallLimit = std::size_t{1}
                                           << 20;  // up to 1 MiB: cut from shared 2 MiB segments
inline constexpr std::size_t kSmallSegment = std::size_t{2} << 20;
inline constexpr std::size_t kMediumLimit = std::size_t{10} << 20;  // up to 10 MiB: cut from 20 MiB segments
inline constexpr std::size_t kMediumSegment = std::size_t{20} << 20;
inline constexpr std::size_t kGuardBytes = 64;  // raw mode on the CPU: canaries on both sides
inline constexpr unsigned char kGuardByte = 0xA5;

struct MemorySegment {
  std::byte* base = nullptr;  // as the device gave it
  std::size_t size = 0;
  bool small = false;
  MemoryBlock* first = nullptr;
};

void check_guards(const MemorySegment& segment);  // ends the program when a canary was overwritten

struct MemoryPool {
  std::list<MemorySegment> segments;
  FreeList free_small, free_large;
  bool is_private = false;
  FreeList& free_list(bool small) { return small ? free_small : free_large; }
};

}  // namespace kiln
