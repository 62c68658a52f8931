// Data parallel: every rank has the whole model and a part of the batch; gradients are summed over the ranks.
// Four forms, which differ in the size of messages and when they are sent:
//
//   naive     every parameter by itself, after backward, one after the other
//   flat      the whole arena in one all-reduce, after backward
//   overlap   every parameter by itself, as soon as backward has completed it
//   bucketed  buckets of up to a cap, each as soon as it is complete
//
// The arena is contiguous, so flat, and buckets of neighbours, are sent in place. Others are
// copied into one buffer first.
#pragma once

#include <string_view>

#include "dist/strategy/bucketed.h"

namespace kiln {

class DdpStrategy : public BucketedStrategy {
 public:
  explicit DdpStrategy(RankContext& ctx, Communicator& comm, const BucketOptions& options = overlap())
      : BucketedStrategy(ctx, comm, options) {}

  static BucketOptions naive() { return {.cap = 0, .as_ready = false, .in_flight = 1}; }
  static BucketOptions flat() { return {.cap = BucketOptions::kAll, .as_ready = false}; }
  // Buckets that lie in the arena need no memory of their own, so any number may be in flight: a limit would
  // hold backward up behind a busy link, or behind a rank that is late. Copies are bounded.
  static BucketOptions bucketed(double cap, DType wire) {
    BucketOptions o{.cap = cap, .wire = wire};
    if (wire == DType::f32) o.in_flight = BucketOptions::kAnyNumber;
    return o;
  }
  static BucketOptions overlap() { return {.cap = 0, .in_flight = BucketOptions::kAnyNumber}; }
  // By its name; `cap` is that of the buckets.
  static BucketOptions form(std::string_view name, double cap, DType grad_comm);

 protected:
  void start(Bucket& b) override;
  void finish_bucket(Bucket& b) override;
};

}  // namespace kiln
