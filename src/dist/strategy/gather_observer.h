// Did a gathered weight arrive before it was needed? One record for each gather.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "autograd/rank_context.h"

namespace kiln {

// Times are the host's steady clock, in ns. On a GPU the host queues and does not wait: there `wanted` and
// `ready` are when the use and the gather were queued, and say nothing about the device; its own times are in
// the communicator's record of that sequence, and at the place where on_wanted() is called.
struct GatherRecord {
  std::string weight;
  DType as = DType::f32;
  Phase phase = Phase::forward;  // of the use
  int64_t bytes = 0;             // of the whole weight
  bool ahead = false;            // queued before it was wanted
  int64_t queued = 0, wanted = 0, ready = 0;
  uint64_t sequence = 0;  // of the gather, among the communicator's calls
  bool in_time() const { return ready <= wanted; }
};

class GatherObserver {
 public:
  virtual ~GatherObserver() = default;
  virtual void on_wanted() {}  // compute will wait for a gather next, and on_gather() names it
  virtual void on_gather(const GatherRecord& record) = 0;
  // A micro-step used weights in another order than the one before: what was gathered ahead was wasted.
  virtual void on_order_change(std::string_view /*what*/) {}
};

}  // namespace kiln
