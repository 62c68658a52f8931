// When gradients became complete, when their sum was started, and when the rank stalled for their sums:
// what an overlap ledger is made of. The observer reads the clock itself: the host's, or, where the
// host only queues, the device's, by a mark in the compute stream at that place.
#pragma once

#include <cstdint>

namespace kiln {

struct Bucket;
struct Param;

class BucketObserver {
 public:
  virtual ~BucketObserver() = default;
  virtual void on_gradient(const Param& /*p*/, int64_t /*bytes*/) {}  // complete on this rank
  virtual void on_start(const Bucket& /*b*/) {}                       // its collective is queued next
  virtual void on_wait_begin() {}                                     // for a collective
  virtual void on_wait_end() {}
  virtual void on_finish_begin() {}  // backward is over
  virtual void on_finish_end() {}    // all sums are in place
};

}  // namespace kiln
