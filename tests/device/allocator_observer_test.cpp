// What observers and threads see of the allocator, in both modes.
#include "device/allocator.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "device/fake_backend.h"

namespace kiln {
namespace {

// What observers see must add up by itself: a trace has nothing else.
class Ledger : public AllocObserver {
 public:
  void on_alloc_event(const AllocEvent& e) override {
    using Kind = AllocEvent::Kind;
    ++events;
    if (e.kind == Kind::alloc) {
      EXPECT_TRUE(live.emplace(e.address, std::pair{e.tag, e.bytes}).second) << "handed out twice";
      live_bytes += e.bytes;
    } else if (e.kind == Kind::free) {
      const auto it = live.find(e.address);
      ASSERT_NE(it, live.end()) << "freed what was not live";
      EXPECT_EQ(it->second, (std::pair{e.tag, e.bytes}));
      live_bytes -= e.bytes;
      live.erase(it);
    } else if (e.kind == Kind::segment_alloc) {
      EXPECT_TRUE(segments.emplace(e.address, e.bytes).second);
      reserved += e.bytes;
    } else if (e.kind == Kind::segment_free) {
      const auto it = segments.find(e.address);
      ASSERT_NE(it, segments.end()) << "a segment was freed that was never announced";
      EXPECT_EQ(it->second, e.bytes);
      reserved -= e.bytes;
      segments.erase(it);
    } else {
      ++out_of_memory;
    }
  }

  std::map<const void*, std::pair<Tag, std::size_t>> live;
  std::map<const void*, std::size_t> segments;
  std::size_t live_bytes = 0, reserved = 0;
  int events = 0, out_of_memory = 0;
};

class AllocatorObserver : public testing::TestWithParam<AllocMode> {};
INSTANTIATE_TEST_SUITE_P(Both, AllocatorObserver, testing::Values(AllocMode::caching, AllocMode::raw),
                         [](const auto& info) { return info.param == AllocMode::raw ? "raw" : "caching"; });

TEST_P(AllocatorObserver, ObserversSeeABalancedSequence) {
  FakeBackend backend;
  Ledger ledger;
  {
    Allocator allocator(backend, FakeBackend::compute(), GetParam());
    allocator.add_observer(&ledger);
    std::mt19937 gen(5);
    std::vector<Buffer> live;
    for (int i = 0; i < 2000; ++i) {
      if (live.size() < 40 || gen() % 2 == 0) {
        live.push_back(allocator.allocate({gen() % (16 * 1024)}, static_cast<Tag>(gen() % kTagCount)));
      } else {
        live.erase(live.begin() + gen() % live.size());
      }
      ASSERT_EQ(ledger.live_bytes, allocator.stats().live_total);
      ASSERT_EQ(ledger.reserved, allocator.stats().reserved);
    }
    ASSERT_EQ(ledger.live.size(), live.size());
    PrivatePool pool(allocator);
    {
      PoolScope scope(pool);
      live.push_back(allocator.allocate({5000}, Tag::activation));
      allocator.allocate({6000}, Tag::activation);
    }
    allocator.fail_at(1);
    EXPECT_THROW(allocator.allocate({1}, Tag::data), Error);
    EXPECT_EQ(ledger.out_of_memory, 1);
    live.clear();
    EXPECT_TRUE(ledger.live.empty());
  }
  EXPECT_TRUE(ledger.segments.empty());
  EXPECT_EQ(ledger.reserved, 0U);
}

TEST_P(AllocatorObserver, BuffersAliveAtTheEndAreFreedInTheLedgerToo) {
  FakeBackend backend;
  Ledger ledger;
  Buffer late, from_pool;
  {
    Allocator allocator(backend, FakeBackend::compute(), GetParam());
    allocator.add_observer(&ledger);
    late = allocator.allocate({100}, Tag::data);
    {
      PrivatePool pool(allocator);
      PoolScope scope(pool);
      from_pool = allocator.allocate({100}, Tag::comm);
    }
    // The pool took its memory along: it must not count as in use any longer.
    EXPECT_EQ(allocator.stats().live[Tag::comm], 0U);
    EXPECT_EQ(allocator.stats().live_total, 512U);
  }
  EXPECT_TRUE(ledger.live.empty());
  EXPECT_EQ(backend.segments, 0);
}

TEST_P(AllocatorObserver, RemovedObserversAreNotCalled) {
  FakeBackend backend;
  Ledger ledger;
  Allocator allocator(backend, FakeBackend::compute(), GetParam());
  allocator.add_observer(&ledger);
  allocator.remove_observer(&ledger);
  allocator.allocate({1}, Tag::data);
  EXPECT_EQ(ledger.events, 0);
}

TEST_P(AllocatorObserver, ABufferMayOutliveTheAllocator) {
  FakeBackend backend;
  Buffer a, b;
  {
    Allocator allocator(backend, FakeBackend::compute(), GetParam());
    a = allocator.allocate({100}, Tag::param);
    b = a;
  }
  EXPECT_EQ(backend.segments, 0);
  EXPECT_EQ(a.bytes(), 100U);
  a.reset();
  EXPECT_TRUE(b.unique());
  b.reset();
}

TEST_P(AllocatorObserver, AnotherThreadMayDropABuffer) {
  FakeBackend backend;
  Allocator allocator(backend, FakeBackend::compute(), GetParam());
  for (int i = 0; i < 200; ++i) {
    Buffer handed = allocator.allocate({1000}, Tag::data);
    std::thread other([b = std::move(handed)]() mutable { b.reset(); });
    Buffer mine = allocator.allocate({1000}, Tag::activation);
    mine.reset();
    other.join();
  }
  EXPECT_EQ(allocator.stats().live_total, 0U);
}

}  // namespace
}  // namespace kiln
