#include "device/allocator.h"

#include <algorithm>

#include "device/memory_pool.h"

namespace kiln {
namespace {

std::unique_ptr<MemoryBlock> new_block() {
  auto block = std::make_unique<MemoryBlock>();
  FreeList alone;
  alone.insert(block.get());
  block->place_on_list = alone.extract(alone.begin());
  return block;
}

}  // namespace

Buffer Buffer::borrowed(void* data, Bytes bytes) {
  auto* block = new MemoryBlock;
  block->ptr = static_cast<std::byte*>(data);
  block->size = block->requested = bytes.value;
  return Buffer(block);
}

void Buffer::reset() {
  MemoryBlock* b = block_;
  block_ = nullptr;
  if (b == nullptr || b->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (b->owner == nullptr) {
    delete b;  // borrowed, or the rank ended first and its memory is gone already
    return;
  }
  b->owner->give_back(b);
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
}

Buffer Allocator::allocate(Bytes bytes, Tag tag, std::source_location where) {
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
  notify({AllocEvent::Kind::alloc, tag, block->size, block->ptr, bytes.value, where});
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
  std::unique_ptr<MemoryBlock> rest = block->size == size ? nullptr : new_block();
  block->place_on_list = list.extract(it);
  split(block, size, std::move(rest));
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
  std::unique_ptr<MemoryBlock> made = new_block(), rest = new_block();  // before there is something to lose
  std::list<MemorySegment> segment(1);
  std::byte* base = try_once();
  if (base == nullptr) {  // cached but free memory of other sizes may be what is in the way
    release_free_segments(*shared_pool_);
    base = try_once();
  }
  if (base == nullptr) {  // near the limit: no whole segment fits, but this one may
    want = size;
    base = try_once();
  }
  if (base == nullptr) return nullptr;
  stats_.reserved += want;
  stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);

  MemoryBlock* const block = made.release();
  segment.front() = {base, want, small, block};
  pool.segments.splice(pool.segments.end(), segment);
  block->owner = this;
  block->ptr = base;
  block->place = next_place_;
  next_place_ += want;
  block->size = want;
  block->pool = &pool;
  block->segment = &pool.segments.back();
  notify({AllocEvent::Kind::segment_alloc, Tag::workspace, want, base});
  split(block, size, std::move(rest));
  return block;
}

// Keeps the first `size` bytes in `block` and puts the rest on the free list.
void Allocator::split(MemoryBlock* block, std::size_t size, std::unique_ptr<MemoryBlock> made) {
  if (block->size == size) return;
  MemoryBlock* const rest = made.release();
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
  block->pool->free_list(block->segment->small).insert(std::move(rest->place_on_list));
}

void Allocator::give_back(MemoryBlock* block) {
  std::lock_guard lock(mutex_);
  stats_.live[block->tag] -= block->size;
  stats_.live_total -= block->size;
  notify({AllocEvent::Kind::free, block->tag, block->size, block->ptr});
  block->in_use = false;
  if (mode_ == AllocMode::raw && !block->pool->is_private && capturing()) {
    held_back_.push_back(block);
    return;
  }
  if (mode_ == AllocMode::raw) {
    if (block->pool->is_private) return;  // a captured graph still writes here; the pool frees it
    release_raw(block);
    return;
  }
  block = coalesce(block);
  block->pool->free_list(block->segment->small).insert(std::move(block->place_on_list));
}

MemoryBlock* Allocator::coalesce(MemoryBlock* block) {
  auto absorb = [&](MemoryBlock* left, MemoryBlock* right) {
    left->size += right->size;
    left->after = right->after;
    if (left->after) left->after->before = left;
    delete right;
  };
  auto& list = block->pool->free_list(block->segment->small);
  if (MemoryBlock* next = block->after; next && !next->in_use) {
    list.erase(next);
    absorb(block, next);
  }
  if (MemoryBlock* previous = block->before; previous && !previous->in_use) {
    previous->place_on_list = list.extract(previous);
    absorb(previous, block);
    return previous;
  }
  return block;
}

void Allocator::release_cached() {
  std::lock_guard lock(mutex_);
  release_free_segments(*shared_pool_);
}

void Allocator::release_free_segments(MemoryPool& pool) {
  if (mode_ == AllocMode::raw || capturing()) return;
  for (auto it = pool.segments.begin(); it != pool.segments.end();) {
    auto here = it++;
    MemoryBlock* only = here->first;
    if (only->in_use || only->after != nullptr) continue;
    backend_.synchronize(compute_);
    pool.free_list(here->small).erase(only);
    release_segment(here, pool);
  }
}

// The segment holds one block, free and on no list.
void Allocator::release_segment(std::list<MemorySegment>::iterator segment, MemoryPool& pool) {
  check_guards(*segment);
  stats_.reserved -= segment->size;
  notify({AllocEvent::Kind::segment_free, Tag::workspace, segment->size, segment->base});
  backend_.release(segment->base);
  delete segment->first;
  pool.segments.erase(segment);
}

}  // namespace kiln
