// Step after step until the last one, an error, or a request to stop: the loop around train/step.cpp. Reports
// to a listener, and leaves printing and files to others.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "data/batch_loader.h"
#include "optim/schedule.h"
#include "train/run/evaluate.h"
#include "train/step.h"
#include "train/step_hook.h"

namespace kiln {

struct RunOptions {
  int64_t steps = 0;
  LrSchedule lr;
  int64_t first = 0;               // steps an earlier process did
  int64_t eval_every = 0;          // steps; 0: only after the last
  int64_t eval_batches = 20;       // of a micro-step's size
  int64_t save_every = 0;          // steps; 0: only after the last
  int64_t sample_every = 0;        // steps; 0: never
  bool overfit_one_batch = false;  // the first step's batches again and again: the loss must go to 0
  // Of several ranks, which must all end after the same step: takes whether this one is to stop, and answers
  // for all. Called by all between steps.
  std::function<bool(bool)> agree_to_stop = {};
  // The host waits for each step's result before it queues the next step: a step that was not finite is then
  // explained while the weights are those it started from, and the run can continue.
  bool results_at_once = false;
  std::vector<StepHook*> hooks = {};
};

struct StepReport {
  int64_t step;  // from 1
  double loss, lr, grad_norm, clip;
  double seconds;                  // of the step, its batches with it
  int64_t tokens;                  // of all ranks
  double loss_scale = 1;           // this step's; 1 unless the precision scales the loss
  bool skipped = false;            // its gradients overflowed at that scale: the weights were left alone
  double host_wait_ms = 0;         // the host's, for the loader to have its batches
  std::optional<double> stall_ms;  // the device's, for them to arrive; where that is measured
  std::size_t peak_bytes = 0;      // of this rank's memory, up to now
};

class RunListener {
 public:
  virtual ~RunListener() = default;
  virtual void on_step(const StepReport&) {}
  virtual void on_evaluation(int64_t /*step*/, const Evaluation&) {}
  // The device is idle, and everything is as that step left it.
  virtual void on_save(const StepScalars& /*last*/) {}
  virtual void on_sample(int64_t /*step*/) {}
};

class TrainLoop {
 public:
  // `validation` may be null: then nothing is evaluated.
  TrainLoop(RankContext& ctx, Model& model, TrainStep& step, const StepOptions& shape, BatchLoader& loader,
            std::shared_ptr<const TokenSet> validation, const RunOptions& options);

  // Trains until `options.steps` or until `stop` is set; the current step is finished either way.
  // Returns the number of steps done, those before `first` with them.
  int64_t run(RunListener& listener, const std::atomic<bool>& stop);

 private:
  using Clock = std::chrono::steady_clock;
  bool is_due(int64_t every, int64_t step) const { return every > 0 && step % every == 0; }
  bool is_to_stop(const std::atomic<bool>& stop);
  bool pause_after(int64_t step) const;
  void pause(RunListener& listener, const StepScalars& result);
  void finish(RunListener& listener, int64_t step, bool stopped);
  std::span<const HostBatch> batches();
  StepScalars finish_step(RunListener& listener);  // waits for the last step and reports it
  void report(RunListener& listener, const StepScalars& result, double seconds, double host_wait_ms);
  void evaluate_now(RunListener& listener, int64_t after);

  RankContext& ctx_;
  Model& model_;
  TrainStep& step_;
  StepOptions shape_;
  BatchLoader& loader_;
  std::shared_ptr<const TokenSet> validation_;
  RunOptions options_;
  std::optional<std::span<const HostBatch>> kept_;  // of the first step, when it is repeated
  bool stopping_ = false;                           // all ranks have agreed to
  double seconds_ = 0;                              // of the step whose result has not been reported
  double host_wait_ms_ = 0;                         // of the same
};

}  // namespace kiln
