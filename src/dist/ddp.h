// Data parallel: every rank has the whole model and a part of the batch. Each parameter's range of the
// gradient arena is summed over the ranks as soon as backward has completed it, beside the rest of backward.
#pragma once

#include <vector>

#include "dist/comm/communicator.h"
#include "dist/strategy.h"

namespace kiln {

class DdpStrategy final : public Strategy {
 public:
  DdpStrategy(RankContext& ctx, Communicator& comm) : ctx_(ctx), comm_(comm) {}

  void attach(ParamStore& params) override;
  void begin_step() override;
  void begin_micro_step(bool last) override { last_ = last; }
  void grad_ready(Param& p) override;
  void finish_gradients() override;
  void reduce_scalars(const Tensor& scalars) override;
  // Even alone: a sum is started in one captured region and waited for in another.
  bool can_capture() const override { return false; }

 private:
  RankContext& ctx_;
  Communicator& comm_;
  ParamStore* params_ = nullptr;
  bool last_ = true;
  std::vector<const Param*> reduced_;
  std::vector<CommHandle> in_flight_;
};

}  // namespace kiln
