// A backend that logs what the allocator asks of it, for tests of ordering, reuse and limits.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/on_exit.h"
#include "base/units.h"
#include "device/host_backend.h"

namespace kiln {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

// Host memory, a log of every call that matters for ordering, and two ways to hand out segments: real memory,
// or made-up addresses that rise or fall, since a device may do either.
class FakeBackend : public HostBackend {
 public:
  enum class Addresses { real, rising, falling };
  explicit FakeBackend(Addresses addresses = Addresses::real) : addresses_(addresses) {}
  ~FakeBackend() override { EXPECT_EQ(segments, 0) << "segments were not given back"; }

  DeviceTraits traits() const override { return {DeviceType::cpu, 0}; }
  bool host_readable() const override { return addresses_ == Addresses::real; }
  void* allocate(std::size_t bytes) override {
    if (bytes > room) return nullptr;
    ++segments;
    log.push_back("allocate");
    if (addresses_ == Addresses::real) return std::aligned_alloc(64, round_up(bytes, 64));
    const std::uintptr_t step = round_up(bytes, kMiB) + kMiB;
    const std::uintptr_t low = addresses_ == Addresses::rising ? next_ : next_ - step;
    next_ = addresses_ == Addresses::rising ? next_ + step : low;
    return reinterpret_cast<void*>(low);  // NOLINT(performance-no-int-to-ptr): never dereferenced
  }
  std::optional<std::size_t> free_bytes() const override {
    return room == SIZE_MAX ? std::nullopt : std::optional(room);
  }
  void release(void* ptr) override {
    --segments;
    log.push_back("release");
    if (addresses_ == Addresses::real) std::free(ptr);
  }
  void* allocate_pinned(std::size_t bytes) override { return std::malloc(bytes); }
  void release_pinned(void* ptr) override { std::free(ptr); }
  void copy_within(void*, const void*, std::size_t, Stream) override {}
  void copy_to_device(void*, const void*, std::size_t, Stream) override {}
  void copy_to_host(void*, const void*, std::size_t, Stream) override {}
  void zero(void*, std::size_t, Stream) override {}

  Event make_event() override {
    ++events_made;
    ++events_alive;
    return {handle(100 + events_made)};
  }
  void destroy(Event) override { --events_alive; }
  void record(Event e, Stream s) override {
    log.push_back(cat("record ", number(e.handle), " on ", name(s)));
  }
  void wait(Stream s, Event e) override { log.push_back(cat(name(s), " waits for ", number(e.handle))); }
  void synchronize(Event e) override { log.push_back(cat("synchronize event ", number(e.handle))); }
  void synchronize(Stream s) override {
    log.push_back(cat("synchronize ", name(s)));
    EXPECT_FALSE(capturing) << "this would invalidate the capture";
  }

  bool can_capture() const override { return true; }
  std::unique_ptr<DeviceGraph> capture(Stream, const std::function<void()>& work) override {
    struct Nothing final : DeviceGraph {
      void launch(Stream) override {}
    };
    capturing = true;
    const OnExit over([&] { capturing = false; });
    work();
    return std::make_unique<Nothing>();
  }

  static Stream stream(int n) { return {handle(n)}; }
  static Stream compute() { return stream(1); }

  std::vector<std::string> take_log() { return std::exchange(log, {}); }

  std::vector<std::string> log;
  std::size_t room = SIZE_MAX;
  bool capturing = false;
  int segments = 0, events_made = 0, events_alive = 0;

 private:
  static void* handle(int n) {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(n));  // NOLINT(performance-no-int-to-ptr)
  }
  static std::uintptr_t number(void* h) { return reinterpret_cast<std::uintptr_t>(h); }
  static std::string name(Stream s) { return s == compute() ? "compute" : cat("stream ", number(s.handle)); }

  Addresses addresses_;
  std::uintptr_t next_ = std::uintptr_t{1} << 44;
};

using Log = std::vector<std::string>;

inline std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "";
}

inline void expect_parts(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
}

}  // namespace kiln
