// Fully sharded: every rank keeps 1/world of each matrix, of its gradient and of its optimizer state; norms
// are whole everywhere (autograd/param_store.h, is_sharded). A weight is gathered shortly before it is used
// and dropped after; its gradient is summed into the shards as soon as it is complete. Both run beside the
// compute. The unit is one weight: docs/parallelism.md says why and what it costs in messages.
#pragma once

#include "dist/gather_slots.h"
#include "dist/grad_scatter.h"
#include "dist/strategy.h"

namespace kiln {

struct FsdpOptions {
  // Weights under way while one is in use; as many gradient sums go on beside backward. 0: nothing runs
  // beside anything.
  int prefetch = 1;
};

class FsdpStrategy final : public Strategy {
 public:
  FsdpStrategy(RankContext& ctx, Communicator& comm, const FsdpOptions& options = {});

  bool shards_params() const override { return true; }
  void attach(ParamStore& params) override;
  void begin_step() override;
  void begin_micro_step(bool last) override;
  void gather(Param& p, DType as) override;
  void release(Param& p) override;
  void grad_begin(Param& p) override;
  void grad_ready(Param& p) override;
  void finish_gradients() override;
  std::vector<Tensor> own_grads(const ParamStore& params) const override { return {params.own_grads()}; }
  void reduce_scalars(const Tensor& scalars) override;
  bool can_capture() const override { return false; }

  void observe(GatherObserver* observer) { slots_.observe(observer); }
  const GatherSlots& slots() const { return slots_; }

 private:
  RankContext& ctx_;
  Communicator& comm_;
  ParamStore* params_ = nullptr;
  GatherSlots slots_;
  GradScatter grads_;
};

}  // namespace kiln
