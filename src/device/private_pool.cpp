// Pools of memory that belong to captured graphs, and the end of a pool.
#include "device/memory_pool.h"

namespace kiln {

void Allocator::drop_pool(MemoryPool& pool) {
  backend_.synchronize(compute_);
  for (auto& segment : pool.segments) {
    check_guards(segment);
    MemoryBlock* next = nullptr;
    for (MemoryBlock* b = segment.first; b != nullptr; b = next) {
      next = b->after;
      if (b->in_use) {
        stats_.live[b->tag] -= b->size;
        stats_.live_total -= b->size;
        notify({AllocEvent::Kind::free, b->tag, b->size, b->ptr});
        b->owner = nullptr;  // its last Buffer deletes the record
      } else {
        delete b;
      }
    }
    stats_.reserved -= segment.size;
    notify({AllocEvent::Kind::segment_free, Tag::workspace, segment.size, segment.base});
    backend_.release(segment.base);
  }
  pool.segments.clear();
  pool.free_small.clear();
  pool.free_large.clear();
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
  if (!allocator_.capturing()) allocator_.release_held_back();
}

}  // namespace kiln
