// When gradients became complete, when they were handed on, and when the rank stood still for their sums:
// what an overlap ledger is made of. Times are the host's steady clock in ns, the clock of a communicator's
// records. On a GPU the host queues and does not wait, and they say when it did so.
#pragma once

#include <cstdint>

namespace kiln {

struct Bucket;
struct Param;

class BucketObserver {
 public:
  virtual ~BucketObserver() = default;
  virtual void on_gradient(const Param& /*p*/, int64_t /*bytes*/, int64_t /*at*/) {}  // complete on this rank
  virtual void on_start(const Bucket& /*b*/, int64_t /*at*/) {}  // its collective is queued next
  virtual void on_wait(int64_t /*begin*/, int64_t /*end*/) {}    // for a collective
  virtual void on_finish(int64_t /*begin*/, int64_t /*end*/) {}  // backward was over; all sums are in place
};

}  // namespace kiln
