// Fully sharded: every rank keeps 1/world of each weight, gradient and optimizer state. A weight is gathered
// when it is used and dropped after; a gradient is reduced into the shards as soon as it is complete.
#pragma once

#include <map>

#include "dist/comm/communicator.h"
#include "dist/strategy.h"

namespace kiln {

class FsdpStrategy final : public Strategy {
 public:
  FsdpStrategy(RankContext& ctx, Communicator& comm) : ctx_(ctx), comm_(comm) {}

  bool shards_params() const override { return true; }
  void attach(ParamStore& params) override;
  void begin_step() override;
  void gather(Param& p) override;
  void release(Param& p) override;
  void grad_begin(Param& p) override;
  void grad_ready(Param& p) override;
  void finish_gradients() override;
  void reduce_scalars(const Tensor& scalars) override;
  bool can_capture() const override { return false; }

 private:
  struct State {
    int users = 0;               // ops that hold the gathered weight now
    Tensor full_grad;            // flat, this micro-step's, while contributions arrive
    bool shard_written = false;  // in this step
  };

  RankContext& ctx_;
  Communicator& comm_;
  ParamStore* params_ = nullptr;
  std::map<const Param*, State> states_;
};

}  // namespace kiln
