// Batch prefetch: copies to the device while it computes. A separate stream copies each from pinned memory
// into one of two slots on the device; the compute stream, when it gets there, waits for that copy alone and
// moves the slot to the fixed place a captured graph reads:
//
//   copy stream     | waits: slot is free | host to slot | ready
//   compute stream  ... the step before ... | waits: ready | slot to fixed place | free | micro-step ...
//
// The move is a copy within the device, some microseconds for any batch of tokens; the bus transfer happens
// during the step before.
#pragma once

#include <vector>

#include "autograd/rank_context.h"
#include "device/owned.h"

namespace kiln {

class PrefetchSlots {
 public:
  static constexpr int64_t kSlots = 2;

  PrefetchSlots(RankContext& ctx, int64_t ids);  // int32 values of a micro-batch: tokens and targets
  ~PrefetchSlots();
  PrefetchSlots(const PrefetchSlots&) = delete;
  PrefetchSlots& operator=(const PrefetchSlots&) = delete;

  // In this order for each micro-batch, and at most kSlots sent that have not been moved. None of them makes
  // the host wait.
  void send(const void* pinned);      // to be left alone until the compute stream is past wait()
  void wait();                        // the compute stream, for the oldest that was sent
  void move_to(const Tensor& place);  // on the compute stream; frees its slot

  void drop();  // what was sent and never moved. The host waits for the copies

 private:
  struct Slot {
    Tensor ids;
    OwnedEvent ready, free;
  };
  Slot& slot(int64_t number) { return slots_[static_cast<std::size_t>(number % kSlots)]; }

  RankContext& ctx_;
  OwnedStream copies_;
  std::vector<Slot> slots_;
  int64_t sent_ = 0, moved_ = 0;
};

}  // namespace kiln
