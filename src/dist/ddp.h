// Data parallel: every rank has the whole model and a part of the batch; gradients are summed over the ranks.
// Four forms of one thing, which differ in what is sent at once and when:
//
//   naive     every parameter by itself, after backward, one after the other
//   flat      the whole arena in one all-reduce, after backward
//   overlap   every parameter by itself, as soon as backward has completed it
//   bucketed  buckets of up to a cap, each as soon as it is complete
//
// The arena is contiguous, so flat, and buckets of neighbours, are sent from where they lie. Others are
// copied together first.
#pragma once

#include "dist/bucketed.h"

namespace kiln {

class DdpStrategy : public BucketedStrategy {
 public:
  explicit DdpStrategy(RankContext& ctx, Communicator& comm, const BucketOptions& options = overlap())
      : BucketedStrategy(ctx, comm, options) {}

  static BucketOptions naive() { return {.cap = 0, .as_ready = false, .in_flight = 1}; }
  static BucketOptions flat() { return {.cap = BucketOptions::kAll, .as_ready = false}; }
  static BucketOptions overlap() { return {.cap = 0, .in_flight = BucketOptions::kAnyNumber}; }

 protected:
  void start(Bucket& b) override;
  void settle(Bucket& b) override;
};

}  // namespace kiln
