// KILN_ALLOC=raw: every buffer its own allocation, with guard bytes where the host can look at them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "device/memory_pool.h"

namespace kiln {
namespace {

// AddressSanitizer watches both ends of an exact allocation better than canaries can.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kGuards = false;
#else
constexpr bool kGuards = true;
#endif

}  // namespace

AllocMode alloc_mode_from_environment() {
  const char* text = std::getenv("KILN_ALLOC");
  if (text == nullptr || *text == '\0' || std::string_view(text) == "caching") return AllocMode::caching;
  if (std::string_view(text) == "raw") return AllocMode::raw;
  throw Error(cat("KILN_ALLOC is '", text, "'"), "it takes 'caching' (the default) or 'raw'",
              ErrorKind::usage);
}

MemoryBlock* Allocator::take_raw(MemoryPool& pool, std::size_t requested) {
  const bool guarded = kGuards && backend_.host_readable();
  const std::size_t room = std::max<std::size_t>(requested, 1) + (guarded ? 2 * kGuardBytes : 0);
  if (room > cap_.value || stats_.reserved > cap_.value - room) return nullptr;
  auto made = std::make_unique<MemoryBlock>();  // before there is something to lose
  std::list<MemorySegment> segment(1);
  auto* base = static_cast<std::byte*>(backend_.allocate(room));
  if (base == nullptr) return nullptr;
  stats_.reserved += room;
  stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
  MemoryBlock* const block = made.release();
  segment.front() = {base, room, false, block};
  pool.segments.splice(pool.segments.end(), segment);
  block->owner = this;
  block->ptr = base;
  if (guarded) {
    block->ptr = base + kGuardBytes;
    std::memset(base, kGuardByte, kGuardBytes);
    std::memset(base + room - kGuardBytes, kGuardByte, kGuardBytes);
  }
  block->size = round_up(std::max<std::size_t>(requested, 1), kBlockRounding);
  block->pool = &pool;
  block->segment = &pool.segments.back();
  notify({AllocEvent::Kind::segment_alloc, Tag::workspace, room, base});
  return block;
}

void Allocator::release_raw(MemoryBlock* block) {
  backend_.synchronize(compute_);  // the backend's free is immediate, queued work is not
  MemoryPool& pool = *block->pool;
  auto it = std::find_if(pool.segments.begin(), pool.segments.end(),
                         [&](const MemorySegment& s) { return &s == block->segment; });
  release_segment(it, pool);
}

void Allocator::release_held_back() {
  for (MemoryBlock* block : held_back_) release_raw(block);
  held_back_.clear();
}

void check_guards(const MemorySegment& segment) {
  if (segment.first->ptr == segment.base) return;  // not a guarded allocation
  for (const std::byte* edge : {segment.base, segment.base + segment.size - kGuardBytes}) {
    for (std::size_t i = 0; i < kGuardBytes; ++i) {
      if (static_cast<unsigned char>(edge[i]) == kGuardByte) continue;
      // A destructor cannot throw, and memory that is already overwritten must not be trained on.
      std::fprintf(stderr, "kiln: a kernel wrote outside its %s buffer of %zu bytes (%s its bounds)\n",
                   std::string(name_of(segment.first->tag)).c_str(), segment.first->requested,
                   edge == segment.base ? "before" : "past");
      std::abort();
    }
  }
}

}  // namespace kiln
