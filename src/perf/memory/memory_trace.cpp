#include "perf/memory/memory_trace.h"

#include <algorithm>

namespace kiln {

std::string_view short_file(std::string_view path) {
  for (std::string_view folder : {"src/", "apps/", "tests/"}) {
    for (auto at = path.rfind(folder); at != std::string_view::npos && at > 0;
         at = path.rfind(folder, at - 1)) {
      if (path[at - 1] == '/') return path.substr(at);
    }
  }
  return path;
}

MemoryTrace::MemoryTrace(RankContext& ctx, std::size_t most_events)
    : ctx_(ctx), most_(std::max<std::size_t>(most_events, 1)), begun_(std::chrono::steady_clock::now()) {
  ctx.allocator().add_observer(this);
  // The rank allocated it before the trace started.
  if (const Tensor& w = ctx.gemm_workspace(); w.defined()) {
    const std::size_t bytes = w.bytes().value;
    on_alloc_event({AllocEvent::Kind::segment_alloc, Tag::workspace, bytes, w.raw()});
    on_alloc_event({AllocEvent::Kind::alloc, Tag::workspace, bytes, w.raw(), bytes});
  }
}

MemoryTrace::~MemoryTrace() { ctx_.allocator().remove_observer(this); }

uint32_t MemoryTrace::scope_index() {
  const std::string_view scope = ctx_.scope();
  if (const auto it = scope_numbers_.find(scope); it != scope_numbers_.end()) return it->second;
  scopes_.emplace_back(scope);
  return scope_numbers_[scopes_.back()] = static_cast<uint32_t>(scopes_.size() - 1);
}

// A real address differs from run to run, and one that was given back comes again for something else.
uint64_t MemoryTrace::place_of(const AllocEvent& event) {
  constexpr uint64_t kFirst = uint64_t{1} << 32, kAlign = 512;
  const auto* address = static_cast<const std::byte*>(event.address);
  if (event.kind == AllocEvent::Kind::segment_alloc) {
    segments_[address] = {kFirst + next_place_, event.bytes};
    next_place_ += round_up(event.bytes, kAlign) + kAlign;
  }
  auto it = segments_.upper_bound(address);
  if (it == segments_.begin()) {  // of a segment that was there before the trace began
    return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(address));
  }
  it = std::prev(it);
  const uint64_t place = it->second.first + static_cast<uint64_t>(address - it->first);
  if (event.kind == AllocEvent::Kind::segment_free) segments_.erase(it);
  return place;
}

void MemoryTrace::forget_oldest() {
  using Kind = AllocEvent::Kind;
  const MemoryEvent& oldest = ring_[first_];
  if (oldest.kind == Kind::alloc) live_before_[oldest.address] = oldest;
  if (oldest.kind == Kind::free) live_before_.erase(oldest.address);
  if (oldest.kind == Kind::segment_alloc) segments_before_[oldest.address] = oldest;
  if (oldest.kind == Kind::segment_free) segments_before_.erase(oldest.address);
  ++dropped_;
}

void MemoryTrace::on_alloc_event(const AllocEvent& event) {
  const RunningOp& running = ctx_.running_op();
  MemoryEvent e;
  e.kind = event.kind;
  e.tag = event.tag;
  e.phase = ctx_.phase();
  e.scope = scope_index();
  e.address = event.address == nullptr ? 0 : place_of(event);
  e.bytes = event.bytes;
  e.time_ns = std::chrono::nanoseconds(std::chrono::steady_clock::now() - begun_).count();
  e.op = running.op;
  e.variant = running.variant;
  if (event.kind == AllocEvent::Kind::alloc) {
    e.requested = event.requested;
    e.line = event.where.line();
    e.file = event.where.file_name();
    e.function = event.where.function_name();
  }
  if (ring_.size() < most_) {
    ring_.push_back(e);
    return;
  }
  forget_oldest();
  ring_[first_] = e;
  first_ = (first_ + 1) % most_;
}

void MemoryTrace::mark(std::string name) {
  marks_.push_back({static_cast<std::size_t>(dropped_) + ring_.size(), std::move(name)});
}

MemoryRecord MemoryTrace::take() const {
  MemoryRecord r;
  r.device = ctx_.device().str();
  r.timed = ctx_.device().type == DeviceType::cpu;
  r.scopes = scopes_;
  for (const auto& [address, e] : segments_before_) r.before.push_back(e);
  for (const auto& [address, e] : live_before_) r.before.push_back(e);
  r.events.reserve(ring_.size());
  for (std::size_t i = 0; i < ring_.size(); ++i) r.events.push_back(ring_[(first_ + i) % ring_.size()]);
  r.dropped = dropped_;
  for (const MemoryMark& m : marks_) {
    if (m.event >= static_cast<std::size_t>(dropped_))
      r.marks.push_back({m.event - static_cast<std::size_t>(dropped_), m.name});
  }
  return r;
}

}  // namespace kiln
