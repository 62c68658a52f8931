// Private pools and other streams: when memory may be used again and when it may go back to the device.
#include "device/allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "device/fake_backend.h"

namespace kiln {
namespace {

class AllocatorPools : public testing::Test {
 protected:
  Buffer get(std::size_t bytes, Tag tag = Tag::activation) { return allocator_.allocate({bytes}, tag); }

  FakeBackend backend_;
  Allocator allocator_{backend_, FakeBackend::compute(), AllocMode::caching};
};

class AllocatorPoolModes : public testing::TestWithParam<AllocMode> {};
INSTANTIATE_TEST_SUITE_P(Both, AllocatorPoolModes, testing::Values(AllocMode::caching, AllocMode::raw),
                         [](const auto& info) { return info.param == AllocMode::raw ? "raw" : "caching"; });

TEST_P(AllocatorPoolModes, PrivateMemoryIsKeptUntilThePoolDies) {
  FakeBackend backend;
  Allocator allocator(backend, FakeBackend::compute(), GetParam());
  auto pool = std::make_unique<PrivatePool>(allocator);
  Buffer inside;
  {
    PoolScope scope(*pool);
    inside = allocator.allocate({3000}, Tag::activation);
  }
  std::byte* const address = inside.data();
  inside.reset();
  EXPECT_EQ(allocator.stats().live_total, 0U);
  EXPECT_EQ(backend.segments, 1);
  allocator.release_cached();
  EXPECT_EQ(backend.segments, 1);
  const Buffer outside = allocator.allocate({3000}, Tag::activation);
  EXPECT_NE(outside.data(), address);
  EXPECT_EQ(backend.segments, 2);
  pool.reset();
  EXPECT_EQ(backend.segments, 1);
}

TEST_P(AllocatorPoolModes, AClearedPoolGivesItsMemoryBackAndStaysUsable) {
  FakeBackend backend;
  Allocator allocator(backend, FakeBackend::compute(), GetParam());
  PrivatePool pool(allocator);
  for (int i = 0; i < 2; ++i) {
    {
      PoolScope scope(pool);
      allocator.allocate({3000}, Tag::activation);
    }
    EXPECT_EQ(backend.segments, 1);
    pool.clear();
    EXPECT_EQ(backend.segments, 0);
    EXPECT_EQ(allocator.stats().reserved, 0U);
  }
}

TEST_F(AllocatorPools, APoolReusesItsOwnMemoryAndNoOtherPoolsMemory) {
  PrivatePool first(allocator_), second(allocator_);
  std::byte *in_first = nullptr, *in_second = nullptr, *shared = nullptr;
  {
    PoolScope scope(first);
    in_first = get(4096).data();
    {
      PoolScope inner(second);
      in_second = get(4096).data();
    }
    EXPECT_EQ(get(4096).data(), in_first);  // back in the first pool
  }
  shared = get(4096).data();
  EXPECT_NE(in_first, in_second);
  EXPECT_NE(shared, in_first);
  EXPECT_NE(shared, in_second);
  EXPECT_EQ(backend_.segments, 3);
  {
    PoolScope scope(second);
    EXPECT_EQ(get(4096).data(), in_second);
  }
  EXPECT_EQ(get(4096).data(), shared);
}

TEST_F(AllocatorPools, ABufferGoesBackToItsOwnPoolFromAnywhere) {
  PrivatePool pool(allocator_);
  Buffer outer = get(4096);
  std::byte* const shared = outer.data();
  {
    PoolScope scope(pool);
    outer.reset();
    EXPECT_NE(get(4096).data(), shared);
  }
  EXPECT_EQ(get(4096).data(), shared);
}

// Whatever cached memory is in the way: the device's stream cannot be waited for while it is being captured.
TEST_F(AllocatorPools, OutOfMemoryInACaptureGivesNothingBackBeforeItsEnd) {
  Allocator tight(backend_, FakeBackend::compute(), AllocMode::caching, {40 * kMiB});
  PrivatePool a(tight), b(tight);
  std::byte* kept = nullptr;
  {
    PoolScope scope(a);
    kept = tight.allocate({12 * kMiB}, Tag::activation).data();
  }
  tight.allocate({20 * kMiB}, Tag::activation).reset();
  backend_.take_log();
  {
    PoolScope scope(b);
    backend_.capture(FakeBackend::compute(), [&] {
      expect_parts(message_of([&] { tight.allocate({28 * kMiB}, Tag::activation); }),
                   {"out of memory", "a graph is being captured"});
      tight.release_cached();
    });
  }
  EXPECT_EQ(backend_.take_log(), Log{});
  tight.release_cached();
  EXPECT_EQ(backend_.take_log(), (Log{"synchronize compute", "release"}));
  {
    PoolScope scope(b);
    EXPECT_NO_THROW(tight.allocate({28 * kMiB}, Tag::activation));
  }
  PoolScope scope(a);
  EXPECT_EQ(tight.allocate({12 * kMiB}, Tag::activation).data(), kept);
}

// --- releases and the compute stream

TEST(AllocatorRawStreams, RawMemoryFreedInACaptureIsReleasedAfterIt) {
  FakeBackend backend;
  Allocator allocator(backend, FakeBackend::compute(), AllocMode::raw);
  PrivatePool pool(allocator), inner_pool(allocator);
  Buffer plain = allocator.allocate({100}, Tag::param), used = allocator.allocate({100}, Tag::comm);
  backend.take_log();
  {
    PoolScope scope(pool);
    backend.capture(FakeBackend::compute(), [&] {
      plain.reset();
      const PoolScope inner(inner_pool);
      used.reset();
      EXPECT_EQ(allocator.stats().live_total, 0U);
    });
    EXPECT_EQ(backend.take_log(), Log{});
    EXPECT_EQ(backend.segments, 2);
  }
  EXPECT_EQ(backend.take_log(), (Log{"synchronize compute", "release", "synchronize compute", "release"}));
  EXPECT_EQ(allocator.stats().reserved, 0U);
}

TEST_P(AllocatorPoolModes, ADroppedPoolWaitsForTheComputeStreamOnly) {
  FakeBackend backend;
  {
    Allocator allocator(backend, FakeBackend::compute(), GetParam());
    PrivatePool pool(allocator);
    PoolScope scope(pool);
    Buffer freed = allocator.allocate({100}, Tag::comm);
    freed.reset();
    backend.take_log();
  }
  EXPECT_EQ(backend.take_log(), (Log{"synchronize compute", "release", "synchronize compute"}));
}

// Memory that a copy or a collective may still touch must not go back to the device before that is done.
TEST_P(AllocatorPoolModes, TheAllocatorsEndWaitsForTheComputeStream) {
  FakeBackend backend;
  Buffer alive;
  {
    Allocator allocator(backend, FakeBackend::compute(), GetParam());
    alive = allocator.allocate({100}, Tag::comm);
    backend.take_log();
  }
  EXPECT_EQ(backend.take_log(), (Log{"synchronize compute", "release"}));
}

}  // namespace
}  // namespace kiln
