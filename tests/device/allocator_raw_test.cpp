#include "device/allocator.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>

#include "device/fake_backend.h"

namespace kiln {
namespace {

TEST(AllocatorRaw, EveryBufferIsAnAllocationOfItsOwn) {
  FakeBackend backend;
  Allocator allocator(backend, FakeBackend::compute(), AllocMode::raw);
  Buffer a = allocator.allocate({100}, Tag::param), b = allocator.allocate({100}, Tag::param);
  EXPECT_EQ(backend.segments, 2);
  EXPECT_EQ(allocator.stats().live_total, 1024U);  // accounted as the caching mode does
  std::memset(a.data(), 1, 100);
  a.reset();
  EXPECT_EQ(backend.segments, 1);
  EXPECT_EQ(allocator.stats().live_total, 512U);
  b.reset();
  EXPECT_EQ(allocator.stats().reserved, 0U);
}

TEST(AllocatorRaw, TheLimitHoldsThereToo) {
  FakeBackend backend;
  Allocator allocator(backend, FakeBackend::compute(), AllocMode::raw, {10000});
  const Buffer a = allocator.allocate({5001}, Tag::param);
  expect_parts(message_of([&] { allocator.allocate({5000}, Tag::grad); }),
               {"out of memory", "grad", "limit"});
  EXPECT_NO_THROW(allocator.allocate({1000}, Tag::grad));
}

// AddressSanitizer finds the write itself, the canaries find it when the buffer is freed.
#ifdef __SANITIZE_ADDRESS__
constexpr const char* kPast = "heap-buffer-overflow";
constexpr const char* kBefore = "heap-buffer-overflow";
#else
constexpr const char* kPast = "wrote outside its grad buffer of 100 bytes \\(past its bounds\\)";
constexpr const char* kBefore = "wrote outside its grad buffer of 100 bytes \\(before its bounds\\)";
#endif

void write_at(std::ptrdiff_t offset, bool in_private_pool) {
  const std::unique_ptr<Backend> backend = make_cpu_backend();
  Allocator allocator(*backend, {}, AllocMode::raw);
  PrivatePool pool(allocator);
  std::optional<PoolScope> scope;
  if (in_private_pool) scope.emplace(pool);
  const Buffer b = allocator.allocate({100}, Tag::grad);
  volatile std::byte* p = b.data();
  p[offset] = std::byte{1};
}

TEST(AllocatorRawDeathTest, AWriteOutsideABufferIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  write_at(0, false);
  write_at(99, false);
  EXPECT_DEATH(write_at(100, false), kPast);
  EXPECT_DEATH(write_at(-1, false), kBefore);
}

TEST(AllocatorRawDeathTest, AWriteOutsideABufferOfAGraphIsNamedToo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  write_at(0, true);
  write_at(99, true);
  EXPECT_DEATH(write_at(100, true), kPast);
  EXPECT_DEATH(write_at(-1, true), kBefore);
}

}  // namespace
}  // namespace kiln
