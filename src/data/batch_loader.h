// Tokens to batches. Each shard is cut into windows of T tokens; a window's targets are its tokens moved by
// one, so a shard of n tokens has (n - 1) / T windows and each token is an input once. Epoch after epoch the
// windows come in a new order (or, unshuffled, in the files' own), each exactly once, and all ranks walk the
// one sequence:
//
//   step s takes the next  world x micro_steps x B  windows;
//   rank r's micro-step m the B of them from (r x micro_steps + m) x B on, or, ranks first, from
//   (m x world + r) x B on.
//
// So ranks never share a window, one number is the position of all ranks, and a run can resume with another
// number of ranks. A step may begin in one epoch and end in the next: no window is dropped.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/json_reader.h"
#include "data/host_batch.h"
#include "data/token_set.h"
#include "data/window_order.h"

namespace kiln {

struct LoaderOptions {
  int64_t batch = 1;    // B: sequences of a micro-step on one rank
  int64_t context = 1;  // T
  int micro_steps = 1;
  int rank = 0, world = 1;
  bool ranks_first = false;
  uint64_t seed = 0;
  bool shuffle = true;
  bool prefetch = true;  // a thread prepares the next step; the batches are the same without
};

// A run's position in its data, and what must be unchanged to resume there.
struct LoaderState {
  uint64_t next = 0;  // windows handed out since the beginning, by all ranks
  uint64_t seed = 0;
  bool shuffle = true;
  int64_t context = 0;
  int64_t tokens = 0;     // of the whole set
  uint32_t checksum = 0;  // TokenSet's
  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};
Json to_json(const LoaderState& state);
LoaderState loader_state(const JsonValue& json);

class BatchLoader {
 public:
  BatchLoader(std::shared_ptr<const TokenSet> tokens, const LoaderOptions& options);
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  // The micro-batches of the next step, valid until the next call.
  std::span<const HostBatch> next();

  LoaderState state() const;            // of what next() will hand out
  void seek(const LoaderState& state);  // Error, with both values, when the data or the options are others
  uint64_t windows() const { return windows_; }        // of an epoch
  uint64_t epoch() const { return next_ / windows_; }  // next() begins in
  uint64_t windows_per_step() const;

 private:
  struct Step {
    std::vector<int32_t> ids;  // micro_steps x {tokens [B, T], targets [B, T]}
    std::vector<HostBatch> batches;
  };
  Step make_step() const;
  void fill(Step& step, uint64_t first) const;
  void fill_window(uint64_t place, int32_t* tokens, int32_t* targets) const;
  void prefetch();
  void ask_for(uint64_t first);
  void wait_for_prefetch();

  std::shared_ptr<const TokenSet> tokens_;
  LoaderOptions options_;
  std::vector<uint64_t> windows_before_;  // of the shards before each
  uint64_t windows_ = 0;
  std::unique_ptr<WindowOrder> order_;
  uint64_t next_ = 0;
  Step current_, ahead_;

  std::mutex mutex_;
  std::condition_variable asked_, done_;
  bool wanted_ = false, stopping_ = false;  // guarded by mutex_, as are the next two
  uint64_t ahead_first_ = 0;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace kiln
