// Every allocation and free of a rank, with what it was for: tag, phase, layer, op and source line. The
// record is plain data; memory_analysis.h reads it, report/memory_*.h write it for viewers.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "autograd/rank_context.h"
#include "device/allocator.h"

namespace kiln {

struct MemoryEvent {
  AllocEvent::Kind kind = AllocEvent::Kind::alloc;
  Tag tag = Tag::activation;
  Phase phase = Phase::setup;
  uint32_t scope = 0;         // of MemoryRecord::scopes
  uint32_t line = 0;          // alloc only
  uint64_t address = 0;       // as if every segment were laid behind the one taken before it
  std::size_t bytes = 0;      // as the allocator counts
  std::size_t requested = 0;  // alloc only
  int64_t time_ns = 0;        // since the trace began
  // Constants of the program:
  const char* op = "";
  const char* variant = "";
  const char* file = "";
  const char* function = "";
};

struct MemoryMark {
  std::size_t event = 0;  // the first one after it
  std::string name;
};

struct MemoryRecord {
  std::string device;
  bool timed = false;               // the clock says when the device worked: on the CPU alone
  std::vector<std::string> scopes;  // scopes[0] is ""
  std::vector<MemoryEvent> before;  // what was in use when the first event came: older than the ring is long
  std::vector<MemoryEvent> events;
  std::vector<MemoryMark> marks;
  int64_t dropped = 0;  // events older than the ring is long

  std::string_view scope_of(const MemoryEvent& e) const { return scopes[e.scope]; }
};

// "src/ops/linear/linear.cpp": from the project's own folder on, wherever it was built.
std::string_view short_file(std::string_view path);

// Watches while it lives. For ranks whose buffers are dropped by their own thread alone.
class MemoryTrace final : public AllocObserver {
 public:
  static constexpr std::size_t kEvents = 1'000'000;

  explicit MemoryTrace(RankContext& ctx, std::size_t most_events = kEvents);
  ~MemoryTrace() override;
  MemoryTrace(const MemoryTrace&) = delete;
  MemoryTrace& operator=(const MemoryTrace&) = delete;

  void on_alloc_event(const AllocEvent& event) override;
  void mark(std::string name);
  MemoryRecord take() const;

 private:
  uint64_t place_of(const AllocEvent& event);
  uint32_t scope_index();
  void forget_oldest();

  RankContext& ctx_;
  std::size_t most_;
  std::chrono::steady_clock::time_point begun_;
  std::vector<MemoryEvent> ring_;
  std::size_t first_ = 0;  // of the ring, once it is full
  int64_t dropped_ = 0;
  std::map<uint64_t, MemoryEvent> live_before_, segments_before_;
  std::map<const std::byte*, std::pair<uint64_t, std::size_t>>
      segments_;  // where they are laid, and how long
  uint64_t next_place_ = 0;
  std::vector<std::string> scopes_ = {""};
  std::map<std::string, uint32_t, std::less<>> scope_numbers_ = {{"", 0}};
  std::vector<MemoryMark> marks_;  // by number of the event since the trace began
};

}  // namespace kiln
