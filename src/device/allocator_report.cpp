// What the allocator says of itself: the numbers, the table of tags, and the out-of-memory error.
#include <algorithm>

#include "base/error.h"
#include "device/memory_pool.h"

namespace kiln {

MemoryStats Allocator::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void Allocator::reset_peaks() {
  std::lock_guard lock(mutex_);
  stats_.peak = stats_.live;
  stats_.peak_total = stats_.live_total;
  stats_.peak_reserved = stats_.reserved;
}

std::string Allocator::report() const {
  std::lock_guard lock(mutex_);
  return report_locked();
}

std::string Allocator::report_locked() const {
  std::string s;
  for (int i = 0; i < kTagCount; ++i) {
    const Tag t = static_cast<Tag>(i);
    if (stats_.live[t] != 0) s += cat(s.empty() ? "" : ", ", name_of(t), " ", human({stats_.live[t]}));
  }
  return cat("in use ", human({stats_.live_total}), s.empty() ? "" : cat(" (", s, ")"), ", reserved ",
             human({stats_.reserved}), ", peak ", human({stats_.peak_total}));
}

std::string Allocator::largest_locked(int count) const {
  std::vector<const MemoryBlock*> live;
  auto collect = [&](const MemoryPool& pool) {
    for (const MemorySegment& s : pool.segments) {
      for (const MemoryBlock* b = s.first; b != nullptr; b = b->after) {
        if (b->in_use) live.push_back(b);
      }
    }
  };
  collect(*shared_pool_);
  for (const auto& p : private_pools_) collect(*p);
  std::stable_sort(live.begin(), live.end(),
                   [](const MemoryBlock* a, const MemoryBlock* b) { return a->size > b->size; });
  std::string s;
  for (std::size_t i = 0; i < live.size() && i < static_cast<std::size_t>(count); ++i) {
    s += cat(i ? ", " : "", name_of(live[i]->tag), " ", human({live[i]->size}));
  }
  return s;
}

void Allocator::throw_out_of_memory(Bytes wanted, Tag tag) {
  notify({AllocEvent::Kind::out_of_memory, tag, wanted.value, nullptr});
  std::string cap = cap_.value == SIZE_MAX ? "" : cat(", limit ", human(cap_));
  const std::optional<std::size_t> free = backend_.free_bytes();
  std::string largest = largest_locked(10);
  throw Error(
      cat("[allocator] out of memory on ", name_of(backend_.traits().type), ": ", human(wanted),
          " wanted for ", name_of(tag), "; ", report_locked(), cap,
          free ? cat(", free on the device ", human({*free})) : "",
          largest.empty() ? "" : cat("; largest: ", largest),
          capturing() ? "; a graph is being captured, until its end nothing cached is given back" : ""),
      "use a smaller batch or context, a lower precision, or recompute activations (block or nested)");
}

}  // namespace kiln
