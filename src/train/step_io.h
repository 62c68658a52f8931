// What crosses between host and device in a step, without the host waiting inside it. Batches and scalars go
// through a ring of pinned slots into fixed places on the device; results come back the same way and are read
// one step late. The ring also keeps the last batches, so that a bad step can be run again.
#pragma once

#include <vector>

#include "autograd/rank_context.h"
#include "data/host_batch.h"
#include "device/owned.h"
#include "ops/step_scalars/step_scalars.h"

namespace kiln {

class StepIo {
 public:
  static constexpr int kSlots = 3;  // one being filled, one running, one whose result is being read

  StepIo(RankContext& ctx, int64_t batch, int64_t context, int micro_steps, double loss_scale = 1);
  ~StepIo();
  StepIo(const StepIo&) = delete;
  StepIo& operator=(const StepIo&) = delete;

  const Tensor& tokens() const { return tokens_; }    // int32 [B, T], fixed
  const Tensor& targets() const { return targets_; }  // int32 [B, T], fixed
  const Tensor& scalars() const { return scalars_; }  // StepScalars, fixed

  void check(const HostBatch& batch) const;           // of the right size
  void begin(int64_t attempt, double lr);             // queues the scalars of a step
  void load(int micro_step, const HostBatch& batch);  // queues a micro-batch into the fixed place
  void reload(int64_t attempt, int micro_step);       // the same from the ring: for a replay
  void end();                                         // queues the results' way back
  StepScalars result(int64_t attempt);                // waits for that step only
  void restore(const StepScalars& scalars);           // as if that step had just ended

 private:
  struct Slot {
    PinnedMemory pinned;  // StepScalars in, StepScalars out, then micro_steps x {tokens, targets}
    OwnedEvent done;
    StepScalars* in() const { return reinterpret_cast<StepScalars*>(pinned.data()); }
    StepScalars* out() const { return in() + 1; }
    int32_t* batch(int micro_step, int64_t size) const {
      return reinterpret_cast<int32_t*>(out() + 1) + 2 * size * micro_step;
    }
  };
  Slot& slot(int64_t attempt) { return slots_[attempt % kSlots]; }
  void copy_batch(Slot& s, int micro_step);

  RankContext& ctx_;
  int64_t size_;  // B x T
  int64_t attempt_ = 0;
  bool open_ = false;  // begun and not ended
  Tensor tokens_, targets_, scalars_;
  std::vector<Slot> slots_;
};

}  // namespace kiln
