#include "train/run/oom_snapshot.h"

#include <algorithm>

#include "base/atomic_file.h"
#include "perf/memory/memory_snapshot.h"

namespace kiln {
namespace {

using Kind = AllocEvent::Kind;

}  // namespace

OomSnapshot::OomSnapshot(RankContext& ctx, std::string path) : ctx_(ctx), path_(std::move(path)) {
  spare_.reserve(4096);
  ctx.allocator().add_observer(this);
}

OomSnapshot::~OomSnapshot() { ctx_.allocator().remove_observer(this); }

OomSnapshot::Held OomSnapshot::held(const AllocEvent& event) const {
  const RunningOp& op = ctx_.running_op();
  return {event, op.op, op.variant, ctx_.scope(), ctx_.phase()};
}

void OomSnapshot::on_alloc_event(const AllocEvent& event) {
  switch (event.kind) {
    case Kind::segment_alloc:
      segments_.insert_or_assign(event.address, held(event));
      return;
    case Kind::segment_free:
      segments_.erase(event.address);
      return;
    case Kind::alloc:
      if (spare_.empty()) {
        blocks_.insert_or_assign(event.address, held(event));
      } else {
        Blocks::node_type node = std::move(spare_.back());
        spare_.pop_back();
        node.key() = event.address;
        node.mapped() = held(event);
        blocks_.insert(std::move(node));
      }
      return;
    case Kind::free:
      if (auto node = blocks_.extract(event.address); node && spare_.size() < spare_.capacity())
        spare_.push_back(std::move(node));  // never grows: this may be a destructor
      return;
    case Kind::out_of_memory:
      ran_out(event);
  }
}

std::vector<const OomSnapshot::Held*> OomSnapshot::largest_first() const {
  std::vector<const Held*> all;
  for (const auto& [address, block] : blocks_) all.push_back(&block);
  std::sort(all.begin(), all.end(), [](const Held* a, const Held* b) {
    return a->event.bytes != b->event.bytes ? a->event.bytes > b->event.bytes
                                            : a->event.address < b->event.address;
  });
  return all;
}

MemoryEvent OomSnapshot::entry(const Held& held, MemoryRecord& record) const {
  MemoryEvent e;
  e.kind = held.event.kind;
  e.tag = held.event.tag;
  e.phase = held.phase;
  const auto known = std::find(record.scopes.begin(), record.scopes.end(), held.scope);
  e.scope = static_cast<uint32_t>(known - record.scopes.begin());
  if (known == record.scopes.end()) record.scopes.emplace_back(held.scope);
  e.address = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(held.event.address));
  e.bytes = held.event.bytes;
  e.requested = held.event.requested;
  e.op = held.op;
  e.variant = held.variant;
  if (e.kind == Kind::alloc) {
    e.line = held.event.where.line();
    e.file = held.event.where.file_name();
    e.function = held.event.where.function_name();
  }
  return e;
}

MemoryRecord OomSnapshot::record(const AllocEvent& failed) const {
  MemoryRecord r;
  r.device = ctx_.device().str();
  r.scopes = {""};
  for (const auto& [address, segment] : segments_) r.before.push_back(entry(segment, r));
  for (const Held* block : largest_first()) r.before.push_back(entry(*block, r));
  r.events.push_back(entry(held(failed), r));
  return r;
}

// Where the host has no memory either, or the disk is full, the error itself must still be seen.
void OomSnapshot::ran_out(const AllocEvent& event) {
  try {
    const std::vector<const Held*> all = largest_first();
    said_ = "largest tensors: ";
    for (std::size_t i = 0; i < std::min(kNamed, all.size()); ++i) {
      const Held& h = *all[i];
      const std::string_view file = short_file(h.event.where.file_name());
      said_ += cat(i ? ", " : "", name_of(h.event.tag),
                   *h.op != '\0' ? cat(" of ", h.op) : cat(" (", file, ":", h.event.where.line(), ")"),
                   h.scope.empty() ? "" : cat(" in ", h.scope), " ", human({h.event.bytes}));
    }
    if (path_.empty()) return;
    AtomicFile file(path_);
    write_snapshot_pickle(record(event), [&](std::string_view text) { file.append(text); });
    file.commit();
    said_ += cat("; what it held is in ", path_, ", for pytorch.org/memory_viz");
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace kiln
