// Listens to the training loop: keeps the totals, saves, and feeds the metrics and the view.
#pragma once

#include "train/checkpoint/checkpoint_manager.h"
#include "train/run/run_metrics.h"
#include "train/run/train.h"

namespace kiln {

class RunRecorder final : public RunListener {
 public:
  RunRecorder(const TrainRequest& request, const CheckpointParts& parts, TrainView& view, RunMetrics& metrics,
              CheckpointManager& saver, const BatchLoader& loader, TrainState state)
      : request_(request),
        parts_(parts),
        view_(view),
        metrics_(metrics),
        saver_(saver),
        loader_(loader),
        state_(std::move(state)) {}

  void on_step(const StepReport& r) override;
  void on_evaluation(int64_t step, const Evaluation& e) override;
  void on_save(const StepScalars& last) override;
  void on_sample(int64_t step) override;
  // Shows the model, is not part of its training: where it cannot be made, a warning and no more.
  std::string sample();

  const TrainState& state() const { return state_; }
  double start_seconds() const { return start_seconds_; }  // of this process, to the end of its first step

 private:
  const TrainRequest& request_;
  CheckpointParts parts_;
  TrainView& view_;
  RunMetrics& metrics_;
  CheckpointManager& saver_;
  const BatchLoader& loader_;
  TrainState state_;
  double start_seconds_ = 0;
  bool warm_ = false;  // the first step of a process also warms everything up
};

// A rank other than the first: it saves its part when all do, and prints nothing.
class SavingRank final : public RunListener {
 public:
  SavingRank(CheckpointManager& saver, TrainState state) : saver_(saver), state_(std::move(state)) {}
  void on_step(const StepReport& r) override { saver_.poll(r.step); }
  void on_save(const StepScalars& last) override {
    state_.scalars = last;
    saver_.save(state_);
  }

 private:
  CheckpointManager& saver_;
  TrainState state_;
};

}  // namespace kiln
