// What a rank's device memory held when it ran out: the largest tensors by tag, op and layer for the error,
// and all of them in a file for pytorch.org/memory_viz. Until then it remembers who asked for each block that
// is in use.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "autograd/rank_context.h"
#include "perf/memory/memory_trace.h"

namespace kiln {

class OomSnapshot final : public AllocObserver {
 public:
  static constexpr std::size_t kNamed = 10;

  // `path` empty: no file.
  OomSnapshot(RankContext& ctx, std::string path);
  ~OomSnapshot() override;
  OomSnapshot(const OomSnapshot&) = delete;
  OomSnapshot& operator=(const OomSnapshot&) = delete;

  void on_alloc_event(const AllocEvent& event) override;

  // After memory ran out: "largest tensors: activation of swiglu in layers.0.mlp 12.00 MiB, ...; what it held
  // is in FILE". Empty before.
  const std::string& said() const { return said_; }

 private:
  struct Held {
    AllocEvent event;
    const char* op;
    const char* variant;
    std::string_view scope;  // the rank's, which keeps it
    Phase phase;
  };
  using Blocks = std::unordered_map<const void*, Held>;

  Held held(const AllocEvent& event) const;
  void ran_out(const AllocEvent& event);
  std::vector<const Held*> largest_first() const;
  MemoryRecord record(const AllocEvent& failed) const;
  MemoryEvent entry(const Held& held, MemoryRecord& record) const;

  RankContext& ctx_;
  std::string path_;
  Blocks blocks_, segments_;
  std::vector<Blocks::node_type> spare_;  // nodes of freed blocks: a step then allocates nothing here
  std::string said_;
};

}  // namespace kiln
