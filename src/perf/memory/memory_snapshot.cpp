#include "perf/memory/memory_snapshot.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "base/json.h"
#include "perf/memory/pickle_writer.h"

namespace kiln {
namespace {

using Kind = AllocEvent::Kind;

// The same calls as PickleWriter's, as JSON text.
class JsonWriter {
 public:
  explicit JsonWriter(TextSink sink) : sink_(std::move(sink)) {}

  void begin_dict() { open('{'); }
  void end_dict() { close('}'); }
  void begin_list() { open('['); }
  void end_list() { close(']'); }
  void key(std::string_view name) {
    text(name);
    put(":");
    comma_ = false;
  }
  void text(std::string_view value) {
    separate();
    put(Json(value).dump());
  }
  void number(int64_t value) {
    separate();
    put(std::to_string(value));
  }
  void flag(bool value) {
    separate();
    put(value ? "true" : "false");
  }
  void pair(int64_t a, int64_t b) {
    begin_list();
    number(a);
    number(b);
    end_list();
  }
  void finish() {
    put("\n");
    sink_(buffer_);
  }

 private:
  void separate() {
    if (comma_) put(",");
    comma_ = true;
  }
  void open(char c) {
    separate();
    put({&c, 1});
    comma_ = false;
  }
  void close(char c) {
    put({&c, 1});
    comma_ = true;
  }
  void put(std::string_view s) {
    buffer_ += s;
    if (buffer_.size() < (std::size_t{1} << 20)) return;
    sink_(buffer_);
    buffer_.clear();
  }
  TextSink sink_;
  std::string buffer_;
  bool comma_ = false;
};

// What the last event left behind: segments, and the allocations in each, by address.
struct Segment {
  MemoryEvent taken;
  std::map<uint64_t, MemoryEvent> blocks;
};

std::map<uint64_t, Segment> final_state(const MemoryRecord& record) {
  std::map<uint64_t, Segment> segments;
  const auto apply = [&](const MemoryEvent& e) {
    if (e.kind == Kind::segment_alloc) segments[e.address] = {e, {}};
    if (e.kind == Kind::segment_free) segments.erase(e.address);
    auto it = segments.upper_bound(e.address);
    if (it == segments.begin()) return;
    Segment& s = std::prev(it)->second;
    if (e.address >= s.taken.address + s.taken.bytes) return;  // of a segment the trace has not seen
    if (e.kind == Kind::alloc) s.blocks[e.address] = e;
    if (e.kind == Kind::free) s.blocks.erase(e.address);
  };
  for (const MemoryEvent& e : record.before) apply(e);
  for (const MemoryEvent& e : record.events) apply(e);
  return segments;
}

template <class Writer>
class SnapshotWriter {
 public:
  SnapshotWriter(const MemoryRecord& record, Writer writer) : record_(record), w_(std::move(writer)) {}

  void run() {
    w_.begin_dict();
    w_.key("segments");
    w_.begin_list();
    for (const auto& [address, s] : final_state(record_)) segment(s);
    w_.end_list();
    w_.key("device_traces");
    w_.begin_list();
    w_.begin_list();  // of the one device
    for (const MemoryEvent& e : record_.before) event(e);
    for (const MemoryEvent& e : record_.events) event(e);
    w_.end_list();
    w_.end_list();
    w_.key("allocator_settings");
    w_.begin_dict();
    entry("device", record_.device);
    entry("dropped_events", record_.dropped);
    w_.end_dict();
    w_.key("external_annotations");
    w_.begin_list();
    w_.end_list();
    w_.end_dict();
    w_.finish();
  }

 private:
  void entry(const char* name, int64_t value) {
    w_.key(name);
    w_.number(value);
  }
  void entry(const char* name, std::string_view value) {
    w_.key(name);
    w_.text(value);
  }

  void frame(std::string_view file, int64_t line, std::string_view name) {
    w_.begin_dict();
    entry("filename", file);
    entry("line", line);
    entry("name", name);
    w_.end_dict();
  }

  // The line that allocated, and the scope it ran in: the viewer shows frames, innermost first.
  void frames(const MemoryEvent& e) {
    w_.key("frames");
    const auto key = std::tuple(e.file, e.line, e.op, e.variant, e.scope, static_cast<int>(e.phase), e.tag);
    if constexpr (requires { w_.remember(); }) {
      if (const auto it = seen_.find(key); it != seen_.end()) return w_.again(it->second);
    }
    w_.begin_list();
    if (*e.file != '\0') frame(short_file(e.file), e.line, e.function);
    const std::string_view scope = record_.scope_of(e);
    if (*e.op != '\0') frame(scope.empty() ? "(no layer)" : scope, 0, cat(e.op, " (", e.variant, ")"));
    frame(name_of(e.phase), 0, cat("tag ", name_of(e.tag)));
    w_.end_list();
    if constexpr (requires { w_.remember(); }) seen_[key] = w_.remember();
  }

  void metadata(const MemoryEvent& e) {
    entry("user_metadata", cat(name_of(e.phase), " ", record_.scope_of(e), *e.op == '\0' ? "" : " ", e.op,
                               " [", name_of(e.tag), "]"));
  }

  void block(uint64_t address, std::size_t size, const MemoryEvent* e) {
    w_.begin_dict();
    entry("address", static_cast<int64_t>(address));
    entry("size", static_cast<int64_t>(size));
    entry("requested_size", static_cast<int64_t>(e ? std::min(e->requested, size) : 0));
    entry("state", e ? "active_allocated" : "inactive");
    if (e) {
      frames(*e);
      metadata(*e);
    } else {
      w_.key("frames");
      w_.begin_list();
      w_.end_list();
    }
    w_.end_dict();
  }

  void segment(const Segment& s) {
    const uint64_t begin = s.taken.address, end = begin + s.taken.bytes;
    int64_t allocated = 0, requested = 0;
    for (const auto& [address, e] : s.blocks) {
      const auto size = static_cast<int64_t>(std::min<uint64_t>(e.bytes, end - address));
      allocated += size;
      requested += std::min(static_cast<int64_t>(e.requested), size);
    }
    w_.begin_dict();
    entry("device", 0);
    entry("address", static_cast<int64_t>(begin));
    entry("total_size", static_cast<int64_t>(s.taken.bytes));
    entry("allocated_size", allocated);
    entry("active_size", allocated);
    entry("requested_size", requested);
    entry("stream", 0);
    entry("segment_type", s.taken.bytes <= (std::size_t{2} << 20) ? "small" : "large");
    w_.key("segment_pool_id");
    w_.pair(0, 0);
    w_.key("is_expandable");
    w_.flag(false);
    w_.key("frames");
    w_.begin_list();
    w_.end_list();
    w_.key("blocks");
    w_.begin_list();
    uint64_t at = begin;
    for (const auto& [address, e] : s.blocks) {  // their sizes must add up to the segment's
      if (address > at) block(at, address - at, nullptr);
      const auto size = static_cast<std::size_t>(std::min<uint64_t>(e.bytes, end - address));
      block(address, size, &e);
      at = address + size;
    }
    if (at < end) block(at, end - at, nullptr);
    w_.end_list();
    w_.end_dict();
  }

  void action(const MemoryEvent& e, const char* name) {
    w_.begin_dict();
    entry("action", name);
    entry("addr", static_cast<int64_t>(e.address));
    entry("size", static_cast<int64_t>(e.bytes));
    entry("stream", 0);
    entry("time_us", e.time_ns / 1000);
    frames(e);
    if (e.kind == Kind::alloc) metadata(e);
    if (e.kind == Kind::out_of_memory) entry("device_free", 0);
    w_.end_dict();
  }

  void event(const MemoryEvent& e) {
    switch (e.kind) {
      case Kind::alloc:
        return action(e, "alloc");
      case Kind::free:
        action(e, "free_requested");  // the viewer matches the second, and wants the first before it
        return action(e, "free_completed");
      case Kind::segment_alloc:
        return action(e, "segment_alloc");
      case Kind::segment_free:
        return action(e, "segment_free");
      case Kind::out_of_memory:
        return action(e, "oom");
    }
  }

  const MemoryRecord& record_;
  Writer w_;
  std::map<std::tuple<const char*, uint32_t, const char*, const char*, uint32_t, int, Tag>, uint32_t> seen_;
};

}  // namespace

void write_snapshot_pickle(const MemoryRecord& record, const TextSink& sink) {
  SnapshotWriter<PickleWriter>(record, PickleWriter(sink)).run();
}

void write_snapshot_json(const MemoryRecord& record, const TextSink& sink) {
  SnapshotWriter<JsonWriter>(record, JsonWriter(sink)).run();
}

}  // namespace kiln
