#include "device/allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "device/fake_backend.h"

namespace kiln {
namespace {

class AllocatorTest : public testing::Test {
 protected:
  Buffer get(std::size_t bytes, Tag tag = Tag::activation) { return allocator_.allocate({bytes}, tag); }

  FakeBackend backend_;
  Allocator allocator_{backend_, FakeBackend::compute(), AllocMode::caching};
};

TEST_F(AllocatorTest, ReusesFreedMemoryWithoutAskingTheDevice) {
  Buffer a = get(1000);
  std::byte* first = a.data();
  EXPECT_EQ(a.bytes(), 1000U);
  a.reset();
  EXPECT_FALSE(a);
  EXPECT_EQ(a.data(), nullptr);
  Buffer b = get(900);  // the same after rounding
  EXPECT_EQ(b.data(), first);
  EXPECT_EQ(b.bytes(), 900U);
  EXPECT_EQ(backend_.segments, 1);
}

TEST_F(AllocatorTest, CopiesShareAndTheLastOneFrees) {
  Buffer a = get(512);
  EXPECT_TRUE(a.unique());
  Buffer b = a;
  EXPECT_FALSE(a.unique());
  EXPECT_EQ(a, b);
  a = Buffer();
  EXPECT_TRUE(b.unique());
  EXPECT_EQ(allocator_.stats().live_total, 512U);
  Buffer c = std::move(b);
  EXPECT_FALSE(b);  // NOLINT(bugprone-use-after-move): moved from means empty here
  c = get(1024);
  EXPECT_EQ(allocator_.stats().live_total, 1024U);
}

TEST_F(AllocatorTest, AlignsAndCountsEveryBlockIn512s) {
  for (std::size_t bytes : {0, 1, 511, 512, 513, 4096}) {
    const Buffer b = get(bytes);
    ASSERT_NE(b.data(), nullptr);
    EXPECT_EQ(b.bytes(), bytes);
    EXPECT_EQ(allocator_.stats().live_total, round_up(std::max<std::size_t>(bytes, 1), 512)) << bytes;
  }
  const Buffer one = get(1), two = get(1);
  EXPECT_EQ(two.data() - one.data(), 512);
}

TEST_F(AllocatorTest, SplitsASegmentAndCoalescesInAnyOrder) {
  std::vector<int> order = {0, 1, 2, 3};
  do {
    std::vector<Buffer> parts(4);
    for (Buffer& p : parts) p = get(kMiB / 2);  // four fill one 2 MiB segment
    std::byte* base = parts[0].data();
    for (int i = 1; i < 4; ++i) ASSERT_EQ(parts[i].data(), base + i * kMiB / 2);
    for (int i : order) parts[i].reset();
    // Only a segment that is whole again has space for 1 MiB from its start and 1 MiB after that.
    const Buffer low = get(kMiB), high = get(kMiB);
    ASSERT_EQ(low.data(), base);
    ASSERT_EQ(high.data(), base + kMiB);
    ASSERT_EQ(backend_.segments, 1);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(AllocatorTest, CoalescingStopsAtLiveNeighboursAndAtTheSegmentsEnd) {
  std::vector<Buffer> parts(8);
  for (Buffer& p : parts) p = get(kMiB / 2);  // two segments
  ASSERT_EQ(backend_.segments, 2);
  parts[2].reset();
  parts[4].reset();
  const Buffer whole = get(kMiB);  // neither hole is 1 MiB
  EXPECT_EQ(backend_.segments, 3);
  parts[3].reset();  // 2 and 3 are one hole now; 4 is its neighbour at most by address, not by segment
  const std::byte* hole = parts[1].data() + kMiB / 2;
  EXPECT_EQ(get(kMiB).data(), hole);
}

TEST_F(AllocatorTest, TakesTheBestFit) {
  std::vector<Buffer> keep;
  auto hole = [&](std::size_t bytes) {
    Buffer b = get(bytes);
    keep.push_back(get(512));  // keeps holes apart
    return b;
  };
  Buffer large = hole(64 * 1024), small = hole(4096), middle = hole(16 * 1024);
  std::byte* const at_large = large.data();
  std::byte* const at_small = small.data();
  std::byte* const at_middle = middle.data();
  large.reset();
  middle.reset();
  small.reset();
  const Buffer a = get(4096), b = get(10 * 1024), c = get(60 * 1024);
  EXPECT_EQ(a.data(), at_small);
  EXPECT_EQ(b.data(), at_middle);
  EXPECT_EQ(c.data(), at_large);
  EXPECT_EQ(get(6 * 1024).data(), at_middle + 10 * 1024);  // the rest of the cut
}

TEST_F(AllocatorTest, SegmentSizesGoByRequestSize) {
  const Buffer small = get(kMiB);
  EXPECT_EQ(allocator_.stats().reserved, 2 * kMiB);
  const Buffer medium = get(kMiB + 1);
  EXPECT_EQ(allocator_.stats().reserved, 22 * kMiB);
  const Buffer medium2 = get(10 * kMiB);  // from the same 20 MiB
  EXPECT_EQ(allocator_.stats().reserved, 22 * kMiB);
  const Buffer large = get(33 * kMiB);
  EXPECT_EQ(allocator_.stats().reserved, 56 * kMiB);  // in steps of 2 MiB
}

TEST_F(AllocatorTest, LiveAndPeakPerTag) {
  Buffer p = get(1024, Tag::param), a = get(2048, Tag::activation);
  a.reset();
  Buffer g = get(4096, Tag::grad);
  MemoryStats s = allocator_.stats();
  EXPECT_EQ(s.live[Tag::param], 1024U);
  EXPECT_EQ(s.live[Tag::activation], 0U);
  EXPECT_EQ(s.live[Tag::grad], 4096U);
  EXPECT_EQ(s.peak[Tag::activation], 2048U);
  EXPECT_EQ(s.peak[Tag::optim], 0U);
  EXPECT_EQ(s.live_total, 5120U);
  EXPECT_EQ(s.peak_total, 5120U);  // not 1024 + 2048 + 4096: the peaks were at different moments
  g.reset();
  s = allocator_.stats();
  EXPECT_EQ(s.live_total, 1024U);
  EXPECT_EQ(s.peak_total, 5120U);
  EXPECT_EQ(s.peak[Tag::grad], 4096U);
  allocator_.reset_peaks();
  s = allocator_.stats();
  EXPECT_EQ(s.peak_total, 1024U);
  EXPECT_EQ(s.peak[Tag::grad], 0U);
  EXPECT_EQ(s.peak[Tag::param], 1024U);
  EXPECT_EQ(s.peak_reserved, s.reserved);
}

TEST_F(AllocatorTest, ReportNamesTheTagsInUse) {
  EXPECT_EQ(allocator_.report(), "in use 0 B, reserved 0 B, peak 0 B");
  const Buffer p = get(3 * 512, Tag::param), d = get(512, Tag::data);
  EXPECT_EQ(allocator_.report(),
            "in use 2.00 KiB (param 1.50 KiB, data 512 B), reserved 2.00 MiB, peak 2.00 KiB");
}

TEST_F(AllocatorTest, ReleaseCachedGivesWholeFreeSegmentsBack) {
  Buffer a = get(kMiB), b = get(5 * kMiB), c = get(40 * kMiB);
  Buffer part = get(512);  // is in a's segment
  EXPECT_EQ(backend_.segments, 3);
  a.reset();
  b.reset();
  c.reset();
  EXPECT_EQ(allocator_.stats().reserved, 62 * kMiB);
  allocator_.release_cached();
  EXPECT_EQ(backend_.segments, 1);
  EXPECT_EQ(allocator_.stats().reserved, 2 * kMiB);
  EXPECT_EQ(allocator_.stats().peak_reserved, 62 * kMiB);
  part.reset();
  allocator_.release_cached();
  EXPECT_EQ(allocator_.stats().reserved, 0U);
  EXPECT_NE(get(kMiB).data(), nullptr);
}

TEST_F(AllocatorTest, FailAtFailsThatAllocationOnceAndLeavesNothingBehind) {
  allocator_.fail_at(3);
  Buffer a = get(512), b = get(512);
  const std::string message = message_of([&] { get(512, Tag::optim); });
  expect_parts(message, {"out of memory", "optim"});
  EXPECT_EQ(allocator_.stats().live_total, 1024U);
  EXPECT_NO_THROW(get(512));
  EXPECT_EQ(allocator_.allocation_count(), 4);
  allocator_.fail_at(1);
  allocator_.fail_at(0);
  EXPECT_NO_THROW(get(512));
  allocator_.fail_at(1);
  EXPECT_THROW(get(512), Error);
}

TEST_F(AllocatorTest, AbsurdSizesAreOutOfMemoryAndNotOverflow) {
  for (std::size_t bytes : {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 511, SIZE_MAX / 2 + 1}) {
    expect_parts(message_of([&] { get(bytes); }), {"out of memory"});
  }
  EXPECT_EQ(allocator_.stats().live_total, 0U);
}

TEST(AllocatorLimit, OutOfMemorySaysWhatWasWantedWhatIsInUseAndWhatToDo) {
  FakeBackend backend;
  Allocator allocator(backend, FakeBackend::compute(), AllocMode::caching, {64 * kMiB});
  const Buffer params = allocator.allocate({30 * kMiB}, Tag::param);
  const Buffer grads = allocator.allocate({12 * kMiB}, Tag::grad);
  const std::string message = message_of([&] { allocator.allocate({30 * kMiB}, Tag::activation); });
  expect_parts(message,
               {"[allocator] out of memory on cpu", "30.00 MiB wanted for activation", "in use 42.00 MiB",
                "param 30.00 MiB", "grad 12.00 MiB", "reserved 42.00 MiB", "limit 64.00 MiB",
                "largest: param 30.00 MiB, grad 12.00 MiB", "smaller batch", "recompute"});
  EXPECT_EQ(allocator.stats().live_total, 42 * kMiB);
  EXPECT_NO_THROW(allocator.allocate({20 * kMiB}, Tag::activation));
}

TEST(AllocatorLimit, TheLimitCountsWhatIsReservedAndIsReachedExactly) {
  FakeBackend backend;
  Allocator allocator(backend, FakeBackend::compute(), AllocMode::caching, {40 * kMiB});
  {
    const Buffer all = allocator.allocate({40 * kMiB}, Tag::param);
    EXPECT_THROW(allocator.allocate({1}, Tag::param), Error);
  }
  // The 40 MiB are cached but free: they make way for a segment of another size.
  const Buffer small = allocator.allocate({1}, Tag::param);
  EXPECT_EQ(allocator.stats().reserved, 2 * kMiB);
  EXPECT_EQ(allocator.stats().peak_reserved, 40 * kMiB);
}

TEST(AllocatorLimit, NearTheLimitARequestGetsASegmentOfItsOwnSize) {
  FakeBackend backend;
  Allocator allocator(backend, FakeBackend::compute(), AllocMode::caching, {30 * kMiB});
  const Buffer most = allocator.allocate({27 * kMiB}, Tag::param);  // reserves 28 MiB
  const Buffer medium = allocator.allocate({kMiB + 512}, Tag::activation);
  EXPECT_EQ(allocator.stats().reserved, 29 * kMiB + 512);
  const Buffer small = allocator.allocate({512}, Tag::activation);
  EXPECT_EQ(allocator.stats().reserved, 29 * kMiB + 1024);
  EXPECT_THROW(allocator.allocate({kMiB}, Tag::activation), Error);
}

TEST(AllocatorLimit, ADeviceThatSaysNoIsAskedAgainAfterReleasingTheCache) {
  FakeBackend backend;
  Allocator allocator(backend, FakeBackend::compute(), AllocMode::caching);
  allocator.allocate({40 * kMiB}, Tag::param).reset();
  backend.take_log();
  backend.room = 10 * kMiB;
  expect_parts(message_of([&] { allocator.allocate({50 * kMiB}, Tag::param); }),
               {"50.00 MiB wanted for param", "in use 0 B", "free on the device 10.00 MiB"});
  EXPECT_EQ(allocator.stats().reserved, 0U);  // the cache went first
  EXPECT_EQ(backend.take_log(), (Log{"synchronize compute", "release"}));
}

// --- KILN_ALLOC

class AllocEnvironment : public testing::Test {
 protected:
  AllocEnvironment() {
    if (const char* text = std::getenv("KILN_ALLOC")) before_ = text;
  }
  ~AllocEnvironment() override {
    if (before_) {
      setenv("KILN_ALLOC", before_->c_str(), 1);
    } else {
      unsetenv("KILN_ALLOC");
    }
  }
  std::optional<std::string> before_;
};

TEST_F(AllocEnvironment, ChoosesTheMode) {
  unsetenv("KILN_ALLOC");
  EXPECT_EQ(alloc_mode_from_environment(), AllocMode::caching);
  setenv("KILN_ALLOC", "", 1);
  EXPECT_EQ(alloc_mode_from_environment(), AllocMode::caching);
  setenv("KILN_ALLOC", "caching", 1);
  EXPECT_EQ(alloc_mode_from_environment(), AllocMode::caching);
  setenv("KILN_ALLOC", "raw", 1);
  EXPECT_EQ(alloc_mode_from_environment(), AllocMode::raw);
}

TEST_F(AllocEnvironment, ABadValueIsAUsageErrorWithTheGoodOnes) {
  for (const char* text : {"Raw", "raw ", "pool", "1"}) {
    setenv("KILN_ALLOC", text, 1);
    try {
      alloc_mode_from_environment();
      FAIL() << "'" << text << "' was taken";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::usage);
      expect_parts(e.what(), {"KILN_ALLOC", text});
      expect_parts(e.hint(), {"caching", "raw"});
    }
  }
}

}  // namespace
}  // namespace kiln
