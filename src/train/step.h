// The training step. step.cpp is the whole flow on one screen.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dist/strategy/strategy.h"
#include "model/model.h"
#include "optim/optimizers.h"
#include "train/canonical_scalars.h"
#include "train/captured_region.h"
#include "train/step_io.h"

namespace kiln {

enum class OnNonFinite : uint8_t { stop, skip, dump };

struct StepOptions {
  int64_t batch = 1;    // of a micro-step, on this rank
  int64_t context = 1;  // tokens of a sequence
  int micro_steps = 1;
  double max_norm = 0;  // clip the global gradient norm; 0: off
  // Losses, gradients and weights have the same bits on any number of ranks that the chunks, micro-steps of
  // all ranks, divide among: the strategy's options say how many (StrategyOptions::chunks).
  bool canonical = false;
  OptimizerOptions optimizer;
  LossScaling loss_scale;  // of the precisions that scale the loss; the others leave it alone
  // Steps in a row that may leave out their update because loss or gradients are not finite; one more is bad.
  // Whoever sets it calls finish() after each step: the explanation wants the weights the step started from.
  int64_t max_skips = 0;
  // Of ranks that all update the same gradients: each looks at all of those it updates, and not only at those
  // whose squares it sums. Reads the gradients once more.
  bool check_summed_grads = false;
  bool graph = true;  // capture and replay where the device can
  std::optional<bool>
      prefetch;  // batches are copied during the step before; default: where the device has streams
};

// How a model is held that such steps train on `world` ranks: gradients may be narrow where nothing
// accumulates.
ParamLayout layout_for(Precision precision, const StepOptions& step, int world = 1, bool sharded = false);
ParamLayout layout_for(Precision precision, const StepOptions& step, int world, const Strategy& strategy);

// A step whose loss or gradients were not finite, as it was found when it was run again.
struct BadStep {
  int64_t step = 0;
  std::string what;      // which tensor was the first, and on which rank
  bool skipped = false;  // its update was left out; else the run ends
  int64_t in_row = 0;    // such steps up to here
  double loss = 0, square_sum = 0;
  std::vector<HostBatch> batches;  // its micro-batches
  std::string tensor;              // the first on this rank that was not finite; empty: there was none
  Shape shape;
  std::vector<float> values;  // of it
};

class TrainStep {
 public:
  // The model's parameters must be materialized and the strategy attached.
  TrainStep(RankContext& ctx, Model& model, Strategy& strategy, const StepOptions& options);

  // Queues one step and returns the result of the one before it. When that one was not finite: runs it again
  // eagerly, and throws naming the op; the weights are as they were before it, and every later call throws
  // the same. Where the loss is scaled, gradients that overflow only leave out their update
  // (StepScalars::skip) until the scale is down to 1. A step that throws for another reason (no memory, say)
  // does not count: the next call begins it again.
  std::optional<StepScalars> run(std::span<const HostBatch> micro_batches, double lr);
  StepScalars finish();  // waits for the last step
  // Between two steps: more parameters are trainable than before. They join the strategy's buckets and the
  // optimizer's spans, with state that starts at nothing. The host waits.
  void refresh();
  void restore(
      const StepScalars& last);  // resumes after that step; weights and moments are the caller's to bring

  // Called for each step that is not finite, on every rank: before run() or finish() throws, or instead of
  // it.
  void on_bad_step(std::function<void(const BadStep&)> tell) { tell_bad_ = std::move(tell); }

  const Optimizer& optimizer() const { return *optimizer_; }
  const Tensor& scalars() const { return io_.scalars(); }  // the step's record, one StepScalars on the device
  bool captured() const { return update_.captured(); }
  // How long the compute stream was stalled waiting for the batches of the step whose result run() or
  // finish() gave last; nothing where that is not measured.
  std::optional<double> stall_ms() const { return stall_ms_; }

 private:
  void queue(std::span<const HostBatch> micro_batches, double lr);
  StepScalars result(int64_t attempt);
  void micro_step(bool first);
  void reduce_gradients();
  void update();
  double grad_scale() const {
    return 1.0 / (options_.micro_steps * model_.params().data_world());
  }  // of the mean
  bool scales_loss() const { return model_.params().policy().scales_loss; }

  static StepOptions checked(const StepOptions& options);
  void check_arguments(std::span<const HostBatch> micro_batches, double lr) const;
  void check_finite(const StepScalars& result);
  BadStep diagnose(const StepScalars& result, const char*& remedy);
  void find_bad_weight(BadStep& bad);
  std::string first_of_ranks(const std::string& mine, int64_t op = 0);
  void replay(int64_t attempt, OpObserver& finder);
  void explain_sum(BadStep& bad, const char*& remedy);
  void find_bad_gradient(BadStep& bad);
  void check_summed_gradients();
  void forget_graphs();

  RankContext& ctx_;
  Model& model_;
  Strategy& strategy_;
  StepOptions options_;
  std::unique_ptr<Optimizer> optimizer_;
  StepIo io_;
  std::optional<CanonicalScalars> canonical_;
  Tensor own_squares_;  // a StepScalars, where summed gradients are checked
  Tensor loss_grad_;    // [1]: this rank's and micro-step's share of the mean, times the loss scale
  PrivatePool pool_;
  CapturedRegion first_micro_, next_micro_, update_;  // the first micro-step writes gradients, later ones add
  int64_t attempt_ = 0;                               // steps queued whole
  int64_t restored_ = 0;                              // of them, those of an earlier process
  int64_t explained_ = 0;                             // the last step that was skipped and explained
  std::optional<double> stall_ms_;
  std::function<void(const BadStep&)> tell_bad_;
  std::optional<Error> bad_;  // thrown again by every later call: the ring will not hold that batch for long
};

}  // namespace kiln
