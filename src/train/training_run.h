// Step after step until the last one, an error, or a request to stop: what lies around train/step.cpp. Says
// what happened through a listener, and leaves printing and files to others.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>

#include "data/batch_loader.h"
#include "optim/schedule.h"
#include "train/evaluate.h"
#include "train/step.h"

namespace kiln {

struct RunOptions {
  int64_t steps = 0;
  LrSchedule lr;
  int64_t eval_every = 0;  // steps; 0: only after the last
  int64_t eval_batches = 20;
  bool overfit_one_batch = false;  // the first step's batches again and again: the loss must go to 0
};

struct StepReport {
  int64_t step;  // from 1
  double loss, lr, grad_norm, clip;
  double seconds;         // from the report before to this one
  int64_t tokens;         // of this rank
  double loss_scale = 1;  // this step's; 1 unless the precision scales the loss
  bool skipped = false;   // its gradients overflowed at that scale: the weights were left alone
};

class RunListener {
 public:
  virtual ~RunListener() = default;
  virtual void on_step(const StepReport&) {}
  virtual void on_evaluation(int64_t /*step*/, const Evaluation&) {}
};

class TrainingRun {
 public:
  // `validation` may be null: then nothing is evaluated.
  TrainingRun(RankContext& ctx, Llama& model, TrainStep& step, const StepOptions& shape, BatchLoader& loader,
              std::shared_ptr<const TokenSet> validation, const RunOptions& options);

  // Trains until `options.steps` or until `stop` is set; the step that is under way is finished either way.
  // Returns the number of steps done.
  int64_t run(RunListener& listener, const std::atomic<bool>& stop);

 private:
  std::span<const HostBatch> batches();
  void report(RunListener& listener, const StepScalars& result);
  void evaluate_now(RunListener& listener, int64_t after);

  RankContext& ctx_;
  Llama& model_;
  TrainStep& step_;
  StepOptions shape_;
  BatchLoader& loader_;
  std::shared_ptr<const TokenSet> validation_;
  RunOptions options_;
  std::optional<std::span<const HostBatch>> kept_;  // of the first step, when it is repeated
  std::chrono::steady_clock::time_point last_;
};

}  // namespace kiln
