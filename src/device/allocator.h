// The caching allocator of one rank. Device memory is taken in segments, cut into blocks, and reused in
// stream order without asking the device. The bookkeeping never looks at the device, so on `meta` the same
// code yields the same peaks: that is how memory is predicted to the byte.
//
// Stream rule: memory belongs to the rank's compute stream. Code that lets another stream touch a buffer
// holds it until the compute stream follows that work (dist/comm/communicator.h, train/prefetch_slots.h); an
// event recorded at its release would also wait for whatever was queued behind. Nothing polls, so addresses
// do not depend on timing.
//
// KILN_ALLOC=raw gives every buffer its own allocation with its exact size (guard bytes on the CPU), so
// that sanitizers see what a pool would hide. Accounting is the same in both modes.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <source_location>
#include <string>
#include <vector>

#include "base/units.h"
#include "device/backend.h"
#include "device/memory_tag.h"

namespace kiln {

class Allocator;
struct MemoryPool;
struct MemorySegment;

enum class AllocMode { caching, raw };
AllocMode alloc_mode_from_environment();  // KILN_ALLOC=raw|caching; anything else is an error

struct MemoryBlock;
struct SmallestFirst {  // best fit; equal sizes by place and not by address, which differs from run to run
  bool operator()(const MemoryBlock* a, const MemoryBlock* b) const;
};
using FreeList = std::set<MemoryBlock*, SmallestFirst>;

struct MemoryBlock {
  // Null for borrowed memory, and once the allocator is gone: a release then only frees this record.
  Allocator* owner = nullptr;
  std::atomic<int> refs{0};
  std::byte* ptr = nullptr;
  std::size_t place = 0;      // its address if every segment were laid behind the one taken before it
  std::size_t size = 0;       // rounded; what accounting counts
  std::size_t requested = 0;  // what the caller requested
  Tag tag = Tag::activation;
  bool in_use = false;
  MemoryPool* pool = nullptr;
  MemorySegment* segment = nullptr;
  MemoryBlock* before = nullptr;  // neighbours inside the segment, for coalescing
  MemoryBlock* after = nullptr;
  FreeList::node_type
      place_on_list;  // while it is on none: so that giving it back, in a destructor, allocates nothing
};

inline bool SmallestFirst::operator()(const MemoryBlock* a, const MemoryBlock* b) const {
  return a->size != b->size ? a->size < b->size : a->place < b->place;
}

// A counted reference to a block; the last one gives the memory back.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(MemoryBlock* block) : block_(block) {
    if (block_) block_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  Buffer(const Buffer& o) : Buffer(o.block_) {}
  Buffer(Buffer&& o) noexcept : block_(o.block_) { o.block_ = nullptr; }
  Buffer& operator=(Buffer o) noexcept {
    std::swap(block_, o.block_);
    return *this;
  }
  ~Buffer() { reset(); }
  // Memory owned by others, who keep it while the buffer and work queued with it live.
  static Buffer borrowed(void* data, Bytes bytes);

  void reset();
  std::byte* data() const { return block_ ? block_->ptr : nullptr; }
  std::size_t bytes() const { return block_ ? block_->requested : 0; }
  bool unique() const { return block_ && block_->refs.load(std::memory_order_acquire) == 1; }
  explicit operator bool() const { return block_ != nullptr; }
  friend bool operator==(const Buffer& a, const Buffer& b) { return a.block_ == b.block_; }

 private:
  MemoryBlock* block_ = nullptr;
};

struct AllocEvent {
  enum class Kind : uint8_t { alloc, free, segment_alloc, segment_free, out_of_memory };
  Kind kind;
  Tag tag;
  std::size_t bytes;
  const void* address;
  std::size_t requested = 0;        // alloc only: what the caller requested, before rounding
  std::source_location where = {};  // alloc only: the line that asked
};

class AllocObserver {
 public:
  virtual ~AllocObserver() = default;
  virtual void on_alloc_event(const AllocEvent& event) = 0;
};

struct MemoryStats {
  PerTag<std::size_t> live{}, peak{};  // per tag, each peak at its own moment
  std::size_t live_total = 0, peak_total = 0;
  std::size_t reserved = 0, peak_reserved = 0;  // taken from the device
};

class Allocator {
 public:
  Allocator(Backend& backend, Stream compute, AllocMode mode, Bytes cap = {SIZE_MAX});
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // Throws Error when memory runs out, with the request, the bytes in use by tag and the largest holders.
  Buffer allocate(Bytes bytes, Tag tag, std::source_location where = std::source_location::current());

  MemoryStats stats() const;
  void reset_peaks();
  std::string report() const;  // "in use: param 1.20 GiB, ...": for error messages and start-up tables

  // Gives whole free segments of the shared pool back to the device. Nothing happens while a graph is
  // captured.
  void release_cached();
  void add_observer(AllocObserver* o) { observers_.push_back(o); }
  void remove_observer(AllocObserver* o) { std::erase(observers_, o); }

  // Fault injection: the n-th allocation from now (1 = the next) fails as if the device were full; 0 turns it
  // off.
  void fail_at(int64_t n) { fail_countdown_ = n; }
  int64_t allocation_count() const { return allocation_count_; }

 private:
  friend class Buffer;
  friend class PrivatePool;
  friend class PoolScope;

  MemoryBlock* take_cached(MemoryPool& pool, std::size_t size);
  MemoryBlock* take_new_segment(MemoryPool& pool, std::size_t size);
  MemoryBlock* take_raw(MemoryPool& pool, std::size_t requested);
  void release_raw(MemoryBlock* block);
  void release_held_back();
  void split(MemoryBlock* block, std::size_t size, std::unique_ptr<MemoryBlock> rest);
  void give_back(MemoryBlock* block);
  MemoryBlock* coalesce(MemoryBlock* block);
  void release_free_segments(MemoryPool& pool);
  void release_segment(std::list<MemorySegment>::iterator segment, MemoryPool& pool);
  void drop_pool(MemoryPool& pool);
  // The compute stream is being captured. The host must not wait for it, that would invalidate the capture;
  // so nothing goes back to the device until it ends.
  bool capturing() const { return current_pool_ != shared_pool_.get(); }
  void notify(const AllocEvent& event) {
    for (AllocObserver* o : observers_) o->on_alloc_event(event);
  }
  [[noreturn]] void throw_out_of_memory(Bytes wanted, Tag tag);
  std::string report_locked() const;
  std::string largest_locked(int count) const;

  Backend& backend_;
  Stream compute_;
  AllocMode mode_;
  Bytes cap_;
  mutable std::mutex mutex_;  // uncontended in a step; a prefetch or checkpoint thread may drop a buffer
  std::unique_ptr<MemoryPool> shared_pool_;
  std::list<std::unique_ptr<MemoryPool>> private_pools_;
  MemoryPool* current_pool_;
  std::vector<MemoryBlock*> held_back_;  // raw blocks of the shared pool, freed during a capture
  std::vector<AllocObserver*> observers_;
  MemoryStats stats_;
  std::size_t next_place_ = 0;
  int64_t fail_countdown_ = 0;
  int64_t allocation_count_ = 0;
};

// Memory that belongs to one captured graph: what a capture allocates stays reserved, though free to the
// host, until the pool is dropped, because every replay writes to the same addresses.
class PrivatePool {
 public:
  explicit PrivatePool(Allocator& allocator);
  ~PrivatePool();
  PrivatePool(const PrivatePool&) = delete;
  PrivatePool& operator=(const PrivatePool&) = delete;

  void clear();  // gives its memory back; the graphs that used it are gone

 private:
  friend class PoolScope;
  Allocator& allocator_;
  MemoryPool* pool_;
};

// While it lives, the allocator allocates from the given pool, and takes the compute stream for one that is
// being captured. It must outlive the capture.
class PoolScope {
 public:
  explicit PoolScope(PrivatePool& pool);
  ~PoolScope();
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;

 private:
  Allocator& allocator_;
  MemoryPool* previous_;
};

}  // namespace kiln
