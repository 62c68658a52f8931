// Fully sharded: every rank keeps 1/world of each matrix, of its gradient and of its optimizer state; norms
// are whole everywhere (autograd/param_store.h, is_sharded). A weight is gathered shortly before it is used
// and dropped after; its gradient is summed into the shards as soon as it is complete. Both overlap
// compute. The unit is one weight: docs/parallelism.md says why and what it costs in messages.
#pragma once

#include <optional>

#include "dist/strategy/gather_slots.h"
#include "dist/strategy/grad_scatter.h"
#include "dist/strategy/grad_tree.h"
#include "dist/strategy/strategy.h"

namespace kiln {

struct FsdpOptions {
  // Weights being gathered while one is in use; as many gradient sums overlap backward. 0: no overlap.
  int prefetch = 1;
  int chunks = 0;  // as BucketOptions has it
};

class FsdpStrategy final : public Strategy {
 public:
  FsdpStrategy(RankContext& ctx, Communicator& comm, const FsdpOptions& options = {});

  bool shards_params() const override { return true; }
  void attach(ParamStore& params) override;
  void begin_step() override;
  void begin_micro_step(bool last) override;
  void end_micro_step() override;
  void gather(Param& p, DType as) override;
  void release(Param& p) override;
  void grad_begin(Param& p) override;
  void grad_ready(Param& p) override;
  void finish_gradients() override;
  std::vector<ParamSpan> spans(const ParamStore& params, SpanUnit unit) const override;
  std::vector<Tensor> own_grads(const ParamStore& params) const override { return {params.own_grads()}; }
  void sum_over_ranks(const Tensor& numbers, std::string_view what) override;
  bool sums_ranks_first() const override { return true; }
  bool can_capture() const override { return false; }

  void observe(GatherObserver* observer) { slots_.observe(observer); }
  const GatherSlots& slots() const { return slots_; }

 private:
  void complete();

  RankContext& ctx_;
  Communicator& comm_;
  const int chunks_;
  ParamStore* params_ = nullptr;
  std::optional<GradTree> tree_;  // where the order of sums must be that of any number of ranks
  int chunk_ = 0;                 // the micro-step
  GatherSlots slots_;
  GradScatter grads_;
};

}  // namespace kiln
