// Long random runs: predictions agree between devices, and live blocks are what a model says they are.
#include "device/allocator.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "device/fake_backend.h"

namespace kiln {
namespace {

struct Trace {
  std::vector<MemoryStats> stats;
  std::vector<std::pair<std::size_t, std::ptrdiff_t>> places;  // (which segment, where in it), per allocation
};

// Numbers segments as they come, so that places can be compared between devices.
class Places : public AllocObserver {
 public:
  void on_alloc_event(const AllocEvent& e) override {
    const auto* address = static_cast<const std::byte*>(e.address);
    if (e.kind == AllocEvent::Kind::segment_alloc) segments_[address] = next_++;
    if (e.kind == AllocEvent::Kind::segment_free) segments_.erase(address);
    if (e.kind != AllocEvent::Kind::alloc) return;
    const auto it = std::prev(segments_.upper_bound(address));
    places.emplace_back(it->second, address - it->first);
  }
  std::vector<std::pair<std::size_t, std::ptrdiff_t>> places;

 private:
  std::map<const std::byte*, std::size_t> segments_;
  std::size_t next_ = 0;
};

Trace run_requests(Backend& backend, AllocMode mode) {
  Allocator allocator(backend, {}, mode);
  Places places;
  allocator.add_observer(&places);
  Trace trace;
  std::mt19937 gen(6);
  std::vector<Buffer> live;
  for (int i = 0; i < 5000; ++i) {
    if (live.size() < 30 || (live.size() < 60 && gen() % 2 == 0)) {
      // Few distinct sizes, as in training: many free blocks of equal size to choose from.
      const std::size_t sizes[] = {100, 4096, 300 * 1024, 700 * 1024, 3 * kMiB, 6 * kMiB, 12 * kMiB};
      live.push_back(allocator.allocate({sizes[gen() % 7]}, static_cast<Tag>(gen() % kTagCount)));
    } else {
      live.erase(live.begin() + gen() % live.size());
    }
    trace.stats.push_back(allocator.stats());
    if (i % 1000 == 999) allocator.release_cached();
  }
  allocator.remove_observer(&places);
  trace.places = std::move(places.places);
  return trace;
}

void expect_same(const Trace& a, const Trace& b, bool reserved_too) {
  ASSERT_EQ(a.stats.size(), b.stats.size());
  for (std::size_t i = 0; i < a.stats.size(); ++i) {
    const MemoryStats &x = a.stats[i], &y = b.stats[i];
    ASSERT_TRUE(x.live == y.live && x.peak == y.peak) << "request " << i;
    ASSERT_EQ(x.live_total, y.live_total) << "request " << i;
    ASSERT_EQ(x.peak_total, y.peak_total) << "request " << i;
    if (!reserved_too) continue;
    ASSERT_EQ(x.reserved, y.reserved) << "request " << i;
    ASSERT_EQ(x.peak_reserved, y.peak_reserved) << "request " << i;
  }
  if (reserved_too) {
    EXPECT_TRUE(a.places == b.places);
  }
}

TEST(AllocatorPrediction, CpuAndMetaAgreeToTheByte) {
  const auto cpu = make_cpu_backend();
  const auto meta = make_meta_backend(DeviceType::cpu);
  const auto meta_cuda = make_meta_backend(DeviceType::cuda);
  const Trace real = run_requests(*cpu, AllocMode::caching);
  expect_same(real, run_requests(*meta, AllocMode::caching), true);
  expect_same(real, run_requests(*meta_cuda, AllocMode::caching), true);
  const auto cpu_raw = make_cpu_backend();
  expect_same(real, run_requests(*cpu_raw, AllocMode::raw), false);
}

// Which block is reused must not hang on where the device happens to put its segments.
TEST(AllocatorPrediction, ReuseDoesNotDependOnTheDevicesAddresses) {
  FakeBackend rising(FakeBackend::Addresses::rising), falling(FakeBackend::Addresses::falling);
  expect_same(run_requests(rising, AllocMode::caching), run_requests(falling, AllocMode::caching), true);
}

// --- a long random run against a model of what is live

TEST(AllocatorStress, LiveBlocksNeverOverlapAndAllCoalesceInTheEnd) {
  const auto backend = make_cpu_backend();
  Allocator allocator(*backend, {}, AllocMode::caching);
  std::mt19937 gen(7);
  struct Held {
    Buffer buffer;
    unsigned char mark;
    Tag tag;
  };
  std::map<std::byte*, Held> live;
  PerTag<std::size_t> counted;
  auto drop = [&](std::map<std::byte*, Held>::iterator it) {
    const Held& h = it->second;
    const std::size_t n = h.buffer.bytes();
    if (n > 0) {  // nothing else wrote to it
      ASSERT_EQ(static_cast<unsigned char>(it->first[0]), h.mark);
      ASSERT_EQ(static_cast<unsigned char>(it->first[n - 1]), h.mark);
    }
    counted[h.tag] -= round_up(std::max<std::size_t>(n, 1), 512);
    live.erase(it);
  };
  for (int i = 0; i < 100000; ++i) {
    const bool take = live.size() < 20 || (live.size() < 200 && gen() % 2 == 0);
    if (!take) {
      auto it = live.lower_bound(std::next(live.begin(), gen() % live.size())->first);
      drop(it);
      continue;
    }
    std::size_t n = gen() % 2000;
    if (gen() % 8 == 0) n = gen() % (256 * 1024);
    if (gen() % 64 == 0) n = gen() % (14 * kMiB);
    const Tag tag = static_cast<Tag>(gen() % kTagCount);
    Buffer b = allocator.allocate({n}, tag);
    std::byte* p = b.data();
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(p) % 64, 0U);
    const auto after = live.lower_bound(p);
    if (after != live.end()) {
      ASSERT_LE(p + n, after->first);
    }
    if (after != live.begin()) {
      const auto before = std::prev(after);
      ASSERT_LE(before->first + before->second.buffer.bytes(), p);
    }
    const unsigned char mark = static_cast<unsigned char>(gen());
    if (n > 0) p[0] = p[n - 1] = static_cast<std::byte>(mark);
    live.emplace(p, Held{std::move(b), mark, tag});
    counted[tag] += round_up(std::max<std::size_t>(n, 1), 512);
    if (i % 64 == 0) {
      ASSERT_TRUE(allocator.stats().live == counted) << i;
    }
    if (i % 10000 == 0) allocator.release_cached();
  }
  while (!live.empty()) drop(live.begin());
  EXPECT_EQ(allocator.stats().live_total, 0U);
  EXPECT_GT(allocator.stats().reserved, 0U);
  allocator.release_cached();  // gives back only segments that are one block again
  EXPECT_EQ(allocator.stats().reserved, 0U);
}

}  // namespace
}  // namespace kiln
