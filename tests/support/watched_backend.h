// The CPU seen as a device with streams: memory and copies are the CPU's, streams and events have names of
// their own and every call that orders them is logged. Tests watch a rank through it, or override a call to
// disturb it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "autograd/rank_context.h"
#include "device/host_backend.h"

namespace kiln {

class WatchedBackend : public HostBackend {
 public:
  DeviceTraits traits() const override { return cpu_->traits(); }
  bool host_readable() const override { return true; }
  void* allocate(std::size_t bytes) override { return cpu_->allocate(bytes); }
  void release(void* ptr) override { cpu_->release(ptr); }
  void* allocate_pinned(std::size_t bytes) override {
    ++pinned_alive;
    return cpu_->allocate_pinned(bytes);
  }
  void release_pinned(void* ptr) override {
    --pinned_alive;
    cpu_->release_pinned(ptr);
  }
  void copy_within(void* dst, const void* src, std::size_t bytes, Stream s) override {
    cpu_->copy_within(dst, src, bytes, s);
  }
  void copy_to_device(void* dst, const void* src, std::size_t bytes, Stream s) override {
    cpu_->copy_to_device(dst, src, bytes, s);
  }
  void copy_to_host(void* dst, const void* src, std::size_t bytes, Stream s) override {
    cpu_->copy_to_host(dst, src, bytes, s);
  }
  void zero(void* dst, std::size_t bytes, Stream s) override { cpu_->zero(dst, bytes, s); }

  // A rank makes its compute stream first; the others are for communication.
  Stream make_stream() override { return {handle(++streams_made_)}; }
  Event make_event() override {
    ++events_alive;
    return {handle(100 + ++events_made_)};
  }
  void destroy(Event) override { --events_alive; }
  void record(Event e, Stream s) override { note(cat("record ", number(e.handle), " on ", name(s))); }
  void wait(Stream s, Event e) override { note(cat(name(s), " waits for ", number(e.handle))); }

  // Of the rank's thread and its communicators'; complete where their calls are over.
  std::vector<std::string> take_log() {
    const std::lock_guard lock(mutex_);
    return std::exchange(log_, {});
  }

  int pinned_alive = 0, events_alive = 0;

 protected:
  static bool is_comm(Stream s) { return number(s.handle) >= 2; }

 private:
  static void* handle(int n) {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(n));  // NOLINT(performance-no-int-to-ptr)
  }
  static std::uintptr_t number(void* h) { return reinterpret_cast<std::uintptr_t>(h); }
  void note(std::string line) {
    const std::lock_guard lock(mutex_);
    log_.push_back(std::move(line));
  }
  static std::string name(Stream s) { return is_comm(s) ? "comm" : "compute"; }

  std::unique_ptr<Backend> cpu_ = make_cpu_backend();
  std::mutex mutex_;
  std::vector<std::string> log_;
  int streams_made_ = 0, events_made_ = 0;
};

// A rank on one thread with such a backend; the caching allocator, since raw memory has no next life to
// fence.
template <class B = WatchedBackend>
RankOptions watched(AllocMode mode = AllocMode::caching) {
  RankOptions o;
  o.threads = 1;
  o.alloc_mode = mode;
  o.backend = [] { return std::make_unique<B>(); };
  return o;
}

}  // namespace kiln
