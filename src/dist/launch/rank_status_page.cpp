#include "dist/launch/rank_status_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace kiln {
namespace {

constexpr uint64_t kMagic = 0x31647261426e6c6bULL;  // "klnBard1"

// Shared between processes: plain old data, whatever one of them does.
struct Line {
  std::atomic<uint32_t> edits;  // odd while it is written
  int32_t state, pid, in_call, kind;
  std::atomic<int64_t>
      step;  // by itself: the rank's own thread notes it, calls are noted by the communicator's
  int64_t failed_at;
  std::array<char, 64> host;
  std::array<char, 200> call;
  std::array<char, 800> error;
  std::array<char, 300> hint;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

template <std::size_t N>
void put(std::array<char, N>& to, const std::string& text) {
  const std::size_t n = std::min(text.size(), N - 1);
  std::memcpy(to.data(), text.data(), n);
  to[n] = '\0';
}

template <std::size_t N>
std::string text_of(const std::array<char, N>& from) {
  return {from.data(), ::strnlen(from.data(), N)};  // a rank that died while writing may have left no end
}

}  // namespace

struct RankStatusPage::Page {
  uint64_t magic;
  int64_t world;
  Line lines[];  // NOLINT(modernize-avoid-c-arrays): as many as there are ranks
};

std::unique_ptr<RankStatusPage> RankStatusPage::create(const std::string& path, int world) {
  const std::size_t bytes = sizeof(Page) + static_cast<std::size_t>(world) * sizeof(Line);
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    const int why = errno;
    if (file >= 0) ::close(file);
    throw Error(cat("cannot make ", path, ": ", std::strerror(why)));
  }
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) throw Error(cat("cannot map ", path, ": ", std::strerror(errno)));
  auto* const page = static_cast<Page*>(memory);  // zeros: every rank is absent
  page->magic = kMagic;
  page->world = world;
  return std::unique_ptr<RankStatusPage>(new RankStatusPage(page, bytes, -1));
}

std::unique_ptr<RankStatusPage> RankStatusPage::open(const std::string& path, int rank) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  struct stat facts{};
  void* memory = MAP_FAILED;
  std::size_t bytes = 0;
  if (::fstat(file, &facts) == 0 && facts.st_size >= static_cast<off_t>(sizeof(Page))) {
    bytes = static_cast<std::size_t>(facts.st_size);
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  ::close(file);
  if (memory == MAP_FAILED) return nullptr;
  std::unique_ptr<RankStatusPage> status_page(new RankStatusPage(static_cast<Page*>(memory), bytes, rank));
  const Page& page = *status_page->page_;
  if (page.magic != kMagic || rank < 0 || rank >= page.world ||
      bytes < sizeof(Page) + static_cast<std::size_t>(page.world) * sizeof(Line))
    return nullptr;
  return status_page;
}

RankStatusPage::~RankStatusPage() { ::munmap(page_, bytes_); }

int RankStatusPage::world() const { return static_cast<int>(page_->world); }

RankStatus RankStatusPage::read(int rank) const {
  const Line& l = page_->lines[rank];
  RankStatus line;
  for (int tries = 0; tries < 100;
       ++tries) {  // one that died while writing leaves it odd: take what is there
    const uint32_t before = l.edits.load(std::memory_order_acquire);
    line.state = static_cast<RankState>(l.state);
    line.pid = l.pid;
    line.host = text_of(l.host);
    line.call = text_of(l.call);
    line.in_call = l.in_call != 0;
    line.step = l.step.load(std::memory_order_relaxed);
    line.failed_at = l.failed_at;
    line.error = text_of(l.error);
    line.hint = text_of(l.hint);
    line.kind = static_cast<ErrorKind>(l.kind);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && l.edits.load(std::memory_order_relaxed) == before) break;
  }
  return line;
}

template <class Write>
void RankStatusPage::write(Write write) {
  const std::lock_guard lock(mutex_);
  Line& l = page_->lines[rank_];
  const uint32_t edits = l.edits.load(std::memory_order_relaxed) | 1;
  l.edits.store(edits, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  write(l);
  l.edits.store(edits + 1, std::memory_order_release);
}

void RankStatusPage::start() {
  std::array<char, 64> host{};
  ::gethostname(host.data(), host.size() - 1);
  write([&](auto& l) {
    l.state = static_cast<int32_t>(RankState::started);
    l.pid = ::getpid();
    l.step = -1;
    l.host = host;
  });
}

void RankStatusPage::join() {
  write([](auto& l) { l.state = static_cast<int32_t>(RankState::joined); });
}

void RankStatusPage::enter(const std::string& call) {
  write([&](auto& l) {
    put(l.call, call);
    l.in_call = 1;
  });
}

void RankStatusPage::leave() {
  write([](auto& l) { l.in_call = 0; });
}

void RankStatusPage::step(int64_t number) {
  page_->lines[rank_].step.store(number, std::memory_order_relaxed);
}

void RankStatusPage::fail(const Error& error) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  write([&](auto& l) {
    if (l.state == static_cast<int32_t>(RankState::failed)) return;  // the first one is the cause
    l.state = static_cast<int32_t>(RankState::failed);
    l.failed_at = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    l.kind = static_cast<int32_t>(error.kind());
    put(l.error, error.what());
    put(l.hint, error.hint());
  });
}

void RankStatusPage::finish() {
  write([](auto& l) { l.state = static_cast<int32_t>(RankState::finished); });
}

}  // namespace kiln
