// Hears what the training loop reports, keeps the totals, saves, and tells the view.
#pragma once

#include "train/run/train.h"
#include "train/checkpoint/checkpoint_manager.h"

namespace kiln::cli {

class RunKeeper final : public RunListener {
 public:
  RunKeeper(const TrainRequest& request, const CheckpointParts& parts, TrainView& view, RunSaver& saver,
            const BatchLoader& loader, TrainState state)
      : request_(request),
        parts_(parts),
        view_(view),
        saver_(saver),
        loader_(loader),
        state_(std::move(state)) {}

  void on_step(const StepReport& r) override;
  void on_evaluation(int64_t step, const Evaluation& e) override { view_.on_evaluation(step, e); }
  void on_save(const StepScalars& last) override;
  void on_sample(int64_t step) override;
  // A picture of the model, not part of its training: where it cannot be made, that is said and no more.
  std::string sample();

  const TrainState& state() const { return state_; }

 private:
  const TrainRequest& request_;
  CheckpointParts parts_;
  TrainView& view_;
  RunSaver& saver_;
  const BatchLoader& loader_;
  TrainState state_;
  bool warm_ = false;  // the first step of a process also warms everything up
};

// One of the ranks beside the first: it saves its part when all do, and says nothing.
class SavingRank final : public RunListener {
 public:
  SavingRank(RunSaver& saver, TrainState state) : saver_(saver), state_(std::move(state)) {}
  void on_save(const StepScalars& last) override {
    state_.scalars = last;
    saver_.save(state_);
  }

 private:
  RunSaver& saver_;
  TrainState state_;
};

}  // namespace kiln::cli
