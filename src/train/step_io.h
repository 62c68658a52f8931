// Transfers between host and device in a step, without the host waiting inside it. Batches and scalars go
// through a ring of pinned slots into fixed places on the device; results come back the same way and are read
// one step late. The ring also keeps the last batches, so that a bad step can be run again.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "autograd/rank_context.h"
#include "data/host_batch.h"
#include "device/owned.h"
#include "ops/step_scalars/step_scalars.h"
#include "train/prefetch_slots.h"

namespace kiln {

class StepIo {
 public:
  static constexpr int kSlots = 3;  // one being filled, one running, one whose result is being read

  // `prefetch`: batches are copied during the step before (train/prefetch_slots.h), or at the start of their
  // own. Default: where the device has streams.
  StepIo(RankContext& ctx, int64_t batch, int64_t context, int micro_steps, double loss_scale = 1,
         std::optional<bool> prefetch = {});
  ~StepIo();
  StepIo(const StepIo&) = delete;
  StepIo& operator=(const StepIo&) = delete;

  const Tensor& tokens() const { return tokens_; }    // int32 [B, T], fixed
  const Tensor& targets() const { return targets_; }  // int32 [B, T], fixed
  const Tensor& scalars() const { return scalars_; }  // StepScalars, fixed
  bool prefetches() const { return ahead_.has_value(); }

  void check(const HostBatch& batch) const;               // of the right size
  void begin(int64_t attempt, double lr);                 // queues the scalars of a step
  void take(std::span<const HostBatch> batches);          // of all its micro-steps, which are free after that
  void load(int micro_step);                              // queues one of them into the fixed place, in order
  void reload(int64_t attempt, int micro_step);           // the same from the ring: for a replay
  void end();                                             // queues the results' way back
  std::vector<HostBatch> batches(int64_t attempt) const;  // in the ring: good for two more steps
  StepScalars result(int64_t attempt);                    // waits for that step only
  void restore(const StepScalars& scalars);               // as if that step had just ended

  // Of a step whose result has been had: how long the compute stream was stalled waiting for its batches.
  // Nothing where that is not measured.
  std::optional<double> stall_ms(int64_t attempt) const;

 private:
  struct Span {
    std::unique_ptr<TimingEvent> begin, end;
  };
  struct Slot {
    PinnedMemory pinned;  // StepScalars in, StepScalars out, then micro_steps x {tokens, targets}
    OwnedEvent done;
    std::vector<Span> stalls = {};  // one for each micro-step that was timed once
    std::size_t timed = 0;          // of them, those of this attempt
    StepScalars* in() const { return reinterpret_cast<StepScalars*>(pinned.data()); }
    StepScalars* out() const { return in() + 1; }
    int32_t* batch(int micro_step, int64_t size) const {
      return reinterpret_cast<int32_t*>(out() + 1) + 2 * size * micro_step;
    }
  };
  // Where a micro-step's tokens are in the ring. On meta there are none, and nobody reads the address.
  int32_t* batch(const Slot& s, int micro_step) const {
    return s.batch(reads_tokens_ ? micro_step : 0, size_);
  }
  Slot& slot(int64_t attempt) { return slots_[attempt % kSlots]; }
  const Slot& slot(int64_t attempt) const { return slots_[attempt % kSlots]; }
  void copy_batch(const Slot& s, int micro_step);
  const Span* next_span(Slot& s);

  RankContext& ctx_;
  int64_t size_;  // B x T
  int micro_steps_;
  bool reads_tokens_;  // not on meta
  int64_t attempt_ = 0;
  bool open_ = false;  // begun and not ended
  bool timed_;
  Tensor ids_;               // tokens and targets, one after the other: one copy brings both
  Tensor tokens_, targets_;  // its halves
  Tensor scalars_;
  std::vector<Slot> slots_;
  std::optional<PrefetchSlots> ahead_;  // after the ring it copies from: it goes first, and waits
};

}  // namespace kiln
