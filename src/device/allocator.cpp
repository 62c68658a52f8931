#include "device/allocator.h"

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

}  // namespace

AllocMode alloc_mode_from_environment() {
  const char* text = std::getenv("KILN_ALLOC");
  if (text == nullptr || *text == '\0' || std::string_view(text) == "caching") return AllocMode::caching;
  if (std::string_view(text) == "raw") return AllocMode::raw;
  throw Error(cat("KILN_ALLOC is '", text, "'"), "it takes 'caching' (the default) or 'raw'",
              ErrorKind::usage);
}

void Buffer::reset() {
  MemoryBlock* b = block_;
  block_ = nullptr;
  if (b == nullptr || b->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (b->owner == nullptr) {
    delete b;  // the rank ended first; its memory is gone already
    return;
  }
  b->owner->give_back(b);
}

void Buffer::used_on(Stream stream) const {
  if (block_ == nullptr || block_->owner == nullptr || stream == block_->owner->compute_) return;
  std::lock_guard lock(block_->owner->mutex_);
  auto& others = block_->other_streams;
  if (std::find(others.begin(), others.end(), stream) == others.end()) others.push_back(stream);
}

Allocator::Allocator(Backend& backend, Stream compute, AllocMode mode, Bytes cap)
    : backend_(backend),
      compute_(compute),
      mode_(mode),
      cap_(cap),
      shared_pool_(std::make_unique<MemoryPool>()) {
  current_pool_ = shared_pool_.get();
}

Allocator::~Allocator() {
  std::lock_guard lock(mutex_);
  for (auto& pool : private_pools_) drop_pool(*pool);
  drop_pool(*shared_pool_);
  for (Event e : spare_events_) backend_.destroy(e);
}

Buffer Allocator::allocate(Bytes bytes, Tag tag) {
  std::lock_guard lock(mutex_);
  ++allocation_count_;
  const bool planted = fail_countdown_ == 1;
  fail_countdown_ = std::max<int64_t>(0, fail_countdown_ - 1);
  if (planted) throw_out_of_memory(bytes, tag);
  if (bytes.value > SIZE_MAX / 2) throw_out_of_memory(bytes, tag);
  const std::size_t size = round_up(std::max<std::size_t>(bytes.value, 1), kBlockRounding);

  MemoryBlock* block = nullptr;
  if (mode_ == AllocMode::raw) {
    block = take_raw(*current_pool_, bytes.value);
  } else {
    block = take_cached(*current_pool_, size);
    if (block == nullptr) block = take_new_segment(*current_pool_, size);
  }
  if (block == nullptr) throw_out_of_memory(bytes, tag);

  block->in_use = true;
  block->requested = bytes.value;
  block->tag = tag;
  stats_.live[tag] += block->size;
  stats_.peak[tag] = std::max(stats_.peak[tag], stats_.live[tag]);
  stats_.live_total += block->size;
  stats_.peak_total = std::max(stats_.peak_total, stats_.live_total);
  notify(AllocEvent::Kind::alloc, tag, block->size, block->ptr);
  return Buffer(block);
}

MemoryBlock* Allocator::take_cached(MemoryPool& pool, std::size_t size) {
  const bool small = size <= kSmallLimit;
  auto& list = pool.free_list(small);
  MemoryBlock key;
  key.size = size;
  auto it = list.lower_bound(&key);
  if (it == list.end()) return nullptr;
  MemoryBlock* block = *it;
  list.erase(it);
  wait_for_fences(block);  // before the cut, so that the rest carries no hazard
  split(block, size);
  return block;
}

MemoryBlock* Allocator::take_new_segment(MemoryPool& pool, std::size_t size) {
  const bool small = size <= kSmallLimit;
  std::size_t want = small                  ? kSmallSegment
                     : size <= kMediumLimit ? kMediumSegment
                                            : round_up(size, kSmallSegment);
  auto try_once = [&]() -> std::byte* {
    if (want > cap_.value || stats_.reserved > cap_.value - want) return nullptr;
    return static_cast<std::byte*>(backend_.allocate(want));
  };
  std::byte* base = try_once();
  if (base == nullptr) {  // cached but free memory of other sizes may be what is in the way
    release_free_segments(*shared_pool_);
    base = try_once();
  }
  if (base == nullptr) {  // near the limit: no room to share, but maybe for this one
    want = size;
    base = try_once();
  }
  if (base == nullptr) return nullptr;
  stats_.reserved += want;
  stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
  notify(AllocEvent::Kind::segment_alloc, Tag::workspace, want, base);

  auto* block = new MemoryBlock;
  pool.segments.push_back({base, want, small, block});
  block->owner = this;
  block->ptr = base;
  block->place = next_place_;
  next_place_ += want;
  block->size = want;
  block->pool = &pool;
  block->segment = &pool.segments.back();
  split(block, size);
  return block;
}

// Keeps the first `size` bytes in `block` and puts the rest on the free list.
void Allocator::split(MemoryBlock* block, std::size_t size) {
  if (block->size == size) return;
  auto* rest = new MemoryBlock;
  rest->owner = this;
  rest->ptr = block->ptr + size;
  rest->place = block->place + size;
  rest->size = block->size - size;
  rest->pool = block->pool;
  rest->segment = block->segment;
  rest->before = block;
  rest->after = block->after;
  if (rest->after) rest->after->before = rest;
  block->after = rest;
  block->size = size;
  block->pool->free_list(block->segment->small).insert(rest);
}

MemoryBlock* Allocator::take_raw(MemoryPool& pool, std::size_t requested) {
  const bool guarded = kGuards && backend_.host_readable();
  const std::size_t room = std::max<std::size_t>(requested, 1) + (guarded ? 2 * kGuardBytes : 0);
  if (room > cap_.value || stats_.reserved > cap_.value - room) return nullptr;
  auto* base = static_cast<std::byte*>(backend_.allocate(room));
  if (base == nullptr) return nullptr;
  stats_.reserved += room;
  stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
  notify(AllocEvent::Kind::segment_alloc, Tag::workspace, room, base);
  auto* block = new MemoryBlock;
  pool.segments.push_back({base, room, false, block});
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
  return block;
}

void Allocator::give_back(MemoryBlock* block) {
  std::lock_guard lock(mutex_);
  stats_.live[block->tag] -= block->size;
  stats_.live_total -= block->size;
  notify(AllocEvent::Kind::free, block->tag, block->size, block->ptr);
  block->in_use = false;
  fence(block);
  if (mode_ == AllocMode::raw) {
    if (block->pool->is_private) return;  // a captured graph still writes here; the pool frees it
    wait_for_fences(block);
    backend_.synchronize(compute_);  // the backend's free is immediate, queued work is not
    MemoryPool& pool = *block->pool;
    auto it = std::find_if(pool.segments.begin(), pool.segments.end(),
                           [&](const MemorySegment& s) { return &s == block->segment; });
    release_segment(it, pool);
    return;
  }
  block = coalesce(block);
  block->pool->free_list(block->segment->small).insert(block);
}

MemoryBlock* Allocator::coalesce(MemoryBlock* block) {
  auto absorb = [&](MemoryBlock* left, MemoryBlock* right) {
    left->size += right->size;
    left->after = right->after;
    if (left->after) left->after->before = left;
    left->fences.insert(left->fences.end(), right->fences.begin(), right->fences.end());
    delete right;
  };
  auto& list = block->pool->free_list(block->segment->small);
  if (MemoryBlock* next = block->after; next && !next->in_use) {
    list.erase(next);
    absorb(block, next);
  }
  if (MemoryBlock* previous = block->before; previous && !previous->in_use) {
    list.erase(previous);
    absorb(previous, block);
    return previous;
  }
  return block;
}

void Allocator::fence(MemoryBlock* block) {
  for (Stream s : block->other_streams) {
    Event e;
    if (spare_events_.empty()) {
      e = backend_.make_event();
    } else {
      e = spare_events_.back();
      spare_events_.pop_back();
    }
    backend_.record(e, s);
    block->fences.push_back(e);
  }
  block->other_streams.clear();
}

void Allocator::wait_for_fences(MemoryBlock* block) {
  for (Event e : block->fences) {
    backend_.wait(compute_, e);
    spare_events_.push_back(e);
  }
  block->fences.clear();
}

void Allocator::release_cached() {
  std::lock_guard lock(mutex_);
  release_free_segments(*shared_pool_);
}

void Allocator::release_free_segments(MemoryPool& pool) {
  if (mode_ == AllocMode::raw) return;
  for (auto it = pool.segments.begin(); it != pool.segments.end();) {
    auto here = it++;
    MemoryBlock* only = here->first;
    if (only->in_use || only->after != nullptr) continue;
    wait_for_fences(only);
    backend_.synchronize(compute_);
    pool.free_list(here->small).erase(only);
    release_segment(here, pool);
  }
}

// The segment holds one block, free and on no list.
void Allocator::release_segment(std::list<MemorySegment>::iterator segment, MemoryPool& pool) {
  check_guards(*segment);
  stats_.reserved -= segment->size;
  notify(AllocEvent::Kind::segment_free, Tag::workspace, segment->size, segment->base);
  backend_.release(segment->base);
  delete segment->first;
  pool.segments.erase(segment);
}

void Allocator::drop_pool(MemoryPool& pool) {
  for (auto& segment : pool.segments) {
    for (MemoryBlock* b = segment.first; b != nullptr; b = b->after) {
      if (!pool.is_private) {
        fence(b);  // those still in use; the others were fenced when they were freed
        wait_for_fences(b);
      }
      // An event recorded in a capture cannot be waited for from outside; the graph joins its streams itself.
      spare_events_.insert(spare_events_.end(), b->fences.begin(), b->fences.end());
      b->fences.clear();
    }
  }
  backend_.synchronize(compute_);
  for (auto& segment : pool.segments) {
    check_guards(segment);
    MemoryBlock* next = nullptr;
    for (MemoryBlock* b = segment.first; b != nullptr; b = next) {
      next = b->after;
      if (b->in_use) {
        stats_.live[b->tag] -= b->size;
        stats_.live_total -= b->size;
        notify(AllocEvent::Kind::free, b->tag, b->size, b->ptr);
        b->owner = nullptr;  // its last Buffer deletes the record
      } else {
        delete b;
      }
    }
    stats_.reserved -= segment.size;
    notify(AllocEvent::Kind::segment_free, Tag::workspace, segment.size, segment.base);
    backend_.release(segment.base);
  }
  pool.segments.clear();
  pool.free_small.clear();
  pool.free_large.clear();
}

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
             human({stats_.reserved}));
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
  notify(AllocEvent::Kind::out_of_memory, tag, wanted.value, nullptr);
  std::string cap = cap_.value == SIZE_MAX ? "" : cat(", limit ", human(cap_));
  std::string largest = largest_locked(10);
  throw Error(
      cat("[allocator] out of memory on ", name_of(backend_.traits().type), ": ", human(wanted),
          " wanted for ", name_of(tag), "; ", report_locked(), cap,
          largest.empty() ? "" : cat("; largest: ", largest)),
      "use a smaller batch or context, a lower precision, or recompute activations (block or nested)");
}

void Allocator::notify(AllocEvent::Kind kind, Tag tag, std::size_t bytes, const void* address) {
  for (AllocObserver* o : observers_) o->on_alloc_event({kind, tag, bytes, address});
}

PrivatePool::PrivatePool(Allocator& allocator) : allocator_(allocator) {
  std::lock_guard lock(allocator.mutex_);
  allocator.private_pools_.push_back(std::make_unique<MemoryPool>());
  pool_ = allocator.private_pools_.back().get();
  pool_->is_private = true;
}

PrivatePool::~PrivatePool() {
  std::lock_guard lock(allocator_.mutex_);
  allocator_.drop_pool(*pool_);
  allocator_.private_pools_.remove_if([this](const auto& p) { return p.get() == pool_; });
}

void PrivatePool::clear() {
  std::lock_guard lock(allocator_.mutex_);
  allocator_.drop_pool(*pool_);
}

PoolScope::PoolScope(PrivatePool& pool) : allocator_(pool.allocator_) {
  std::lock_guard lock(allocator_.mutex_);
  previous_ = allocator_.current_pool_;
  allocator_.current_pool_ = pool.pool_;
}

PoolScope::~PoolScope() {
  std::lock_guard lock(allocator_.mutex_);
  allocator_.current_pool_ = previous_;
}

}  // namespace kiln
