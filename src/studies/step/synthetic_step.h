// A model and its step on random tokens, ready to be run again and again: what `kiln bench step` times on the
// device and, on meta, predicts peaks and costs. The whole step is TrainStep itself; parts of it
// are run as TrainStep runs them.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "autograd/precision.h"
#include "train/step.h"

namespace kiln {

enum class StepMode {
  forward,           // the loss, with no gradient wanted
  forward_backward,  // the loss and all gradients
  full,              // and the update
};

std::string_view name_of(StepMode m);  // forward, forward-backward, full

struct StepSpec {
  ModelConfig model;
  Precision precision = Precision::fp32;
  StepOptions step;
  StepMode mode = StepMode::full;
};

class SyntheticStep {
 public:
  // Draws weights and tokens, by the rank's seed. `sharing` is for the full step of a rank of several, and
  // must outlive this, as must its part of the model; none: the rank is alone, or has all of it.
  SyntheticStep(RankContext& ctx, const StepSpec& spec, Strategy* sharing = nullptr,
                const Partition& partition = whole_model());
  ~SyntheticStep();
  SyntheticStep(const SyntheticStep&) = delete;
  SyntheticStep& operator=(const SyntheticStep&) = delete;

  void run();       // queues one
  double finish();  // waits for the last; its loss. Throws where that is not finite
  // Queues the loss with no gradient wanted, of the same weights, whatever the mode. The context's
  // synchronize() waits for it.
  void run_forward();
  bool captured() const;
  ParamStore& params() { return model_->params(); }

 private:
  void draw_tokens();
  HostBatch next_batch();
  void make_inputs();
  void run_part();
  void micro_step();

  RankContext& ctx_;
  StepSpec spec_;
  std::unique_ptr<Model> model_;
  Strategy one_rank_;
  Strategy& strategy_;
  std::vector<std::vector<int32_t>> tokens_;  // a few batches used alternately, each shifted into its
                                              // targets; none on meta
  int64_t count_ = 0;
  std::optional<TrainStep> whole_;
  // Of a part:
  Tensor ids_, targets_, loss_, loss_grad_;
  std::optional<PrivatePool> pool_;
  std::optional<CapturedRegion> first_, next_;  // the first micro-step writes gradients, later ones add
  std::optional<CapturedRegion> forward_;
};

}  // namespace kiln
