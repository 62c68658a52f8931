// The sum of the ops' own costs.
#pragma once

#include "autograd/op_observer.h"
#include "autograd/rank_context.h"

namespace kiln {

// Adds up what the ops that run state as their cost.
class CostSum final : public OpObserver {
 public:
  explicit CostSum(RankContext& ctx) : ctx_(ctx) { ctx.add_observer(this); }
  ~CostSum() override { ctx_.remove_observer(this); }
  CostSum(const CostSum&) = delete;
  CostSum& operator=(const CostSum&) = delete;

  void on_op_begin(RankContext&, const OpEvent& event) override {
    Cost& sum = event.pass == Pass::forward ? forward : backward;
    sum = sum + event.cost;
  }
  Cost forward, backward;

 private:
  RankContext& ctx_;
};

}  // namespace kiln
