// Compares what the ranks of a run should hold alike: weights that each has whole, their low halves and the
// optimizer's state where each updates all of it, and the step's record. A bit that one rank's memory or link
// has flipped goes unnoticed otherwise: the losses stay plausible, and the replicas drift apart.
#pragma once

#include <string>
#include <vector>

#include "dist/comm/communicator.h"
#include "model/model.h"
#include "optim/optimizer.h"
#include "train/step_hook.h"

namespace kiln {

struct ReplicaTensor {
  std::string name;
  Tensor tensor;
};

// Empty where each rank holds only its own part.
std::vector<ReplicaTensor> replicated_tensors(const ParamStore& params, const Optimizer& optimizer);

class ReplicaCheck final : public StepHook {
 public:
  // Among the ranks of `comm`. After every `every` steps, and before each save.
  ReplicaCheck(RankContext& ctx, Communicator& comm, std::vector<ReplicaTensor> tensors, int64_t every,
               int64_t save_every)
      : ctx_(ctx), comm_(comm), tensors_(std::move(tensors)), every_(every), save_every_(save_every) {}

  bool needs_result(int64_t step) const override;
  void after_step(int64_t step) override;

  // Throws Error, the same on all ranks, naming the ranks that differ from most others and the first tensor.
  void check(int64_t step);

 private:
  RankContext& ctx_;
  Communicator& comm_;
  std::vector<ReplicaTensor> tensors_;
  int64_t every_, save_every_;
};

}  // namespace kiln
