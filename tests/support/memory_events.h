// Hand-written records of allocations, for tests of their readers.
#pragma once

#include "perf/memory/memory_trace.h"

namespace kiln {

inline MemoryEvent memory_event(AllocEvent::Kind kind, uint64_t address, std::size_t bytes,
                                Tag tag = Tag::activation, Phase phase = Phase::forward,
                                const char* op = "") {
  MemoryEvent e;
  e.kind = kind;
  e.address = address;
  e.bytes = bytes;
  e.requested = kind == AllocEvent::Kind::alloc ? bytes - 1 : 0;
  e.tag = tag;
  e.phase = phase;
  e.op = op;
  e.variant = *op == '\0' ? "" : "plain";
  e.file = kind == AllocEvent::Kind::alloc ? "/somewhere/src/ops/one/one.cpp" : "";
  e.line = kind == AllocEvent::Kind::alloc ? 7 : 0;
  e.function = kind == AllocEvent::Kind::alloc ? "Tensor one()" : "";
  return e;
}

// A segment of 8 KiB; a weight, two activations of which one is freed, a scratch in backward. 4096 + 1024 +
// 512 bytes are in use at the peak, after event 3; two events follow.
inline MemoryRecord small_record() {
  using Kind = AllocEvent::Kind;
  constexpr uint64_t kBase = uint64_t{1} << 32;
  MemoryRecord r;
  r.device = "cpu";
  r.scopes = {"", "layers.3.attention", "loss"};
  r.events = {memory_event(Kind::segment_alloc, kBase, 8192, Tag::workspace, Phase::setup),
              memory_event(Kind::alloc, kBase, 4096, Tag::param, Phase::setup),
              memory_event(Kind::alloc, kBase + 4096, 1024, Tag::activation, Phase::forward, "first"),
              memory_event(Kind::alloc, kBase + 5120, 512, Tag::activation, Phase::forward, "second"),
              memory_event(Kind::free, kBase + 4096, 1024, Tag::activation, Phase::backward, "first"),
              memory_event(Kind::alloc, kBase + 6144, 512, Tag::workspace, Phase::backward, "first")};
  r.events[2].scope = 1;
  r.events[3].scope = 2;
  for (std::size_t i = 0; i < r.events.size(); ++i) r.events[i].time_ns = static_cast<int64_t>(i) * 1000;
  r.marks = {{2, "step 1"}};
  return r;
}

}  // namespace kiln
