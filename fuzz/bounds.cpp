#include "bounds.h"

#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Bytes of this thread: what it has allocated and not freed, and the most since the last Bounds.
thread_local std::int64_t live = 0, peak = 0;

void* counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  live += static_cast<std::int64_t>(malloc_usable_size(memory));
  peak = std::max(peak, live);
  return memory;
}

void release(void* memory) noexcept {
  if (memory == nullptr) return;
  live -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

void* operator new(std::size_t size) { return counted(std::malloc(std::max<std::size_t>(size, 1))); }
void* operator new(std::size_t size, std::align_val_t align) {
  const auto a = static_cast<std::size_t>(align);
  return counted(std::aligned_alloc(a, (size + a - 1) / a * a));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

namespace kiln {

Bounds::Bounds(std::size_t input_bytes, std::size_t extra)
    : input_bytes_(input_bytes), extra_(extra), live_before_(live), seconds_before_(thread_seconds()) {
  peak = live;
}

Bounds::~Bounds() {
  const std::size_t most = 4 * input_bytes_ + kMiB + extra_;
  if (const auto taken = peak - live_before_; taken > static_cast<std::int64_t>(most)) {
    std::fprintf(stderr, "an input of %zu bytes took %lld bytes of memory; at most %zu are allowed\n",
                 input_bytes_, static_cast<long long>(taken), most);
    std::abort();
  }
  const double seconds = thread_seconds() - seconds_before_;
  if (seconds > static_cast<double>(1 + input_bytes_ / kMiB)) {
    std::fprintf(stderr, "an input of %zu bytes took %.1f s\n", input_bytes_, seconds);
    std::abort();
  }
}

}  // namespace kiln
