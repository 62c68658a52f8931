#include "train/training_run.h"

namespace kiln {

TrainingRun::TrainingRun(RankContext& ctx, Llama& model, TrainStep& step, const StepOptions& shape,
                         BatchLoader& loader, std::shared_ptr<const TokenSet> validation,
                         const RunOptions& options)
    : ctx_(ctx),
      model_(model),
      step_(step),
      shape_(shape),
      loader_(loader),
      validation_(std::move(validation)),
      options_(options) {
  check_schedule(options.lr);
}

int64_t TrainingRun::run(RunListener& listener, const std::atomic<bool>& stop) {
  last_ = std::chrono::steady_clock::now();
  int64_t done = 0;
  bool evaluated = false;  // after step `done`
  while (done < options_.steps && !stop) {
    if (const auto previous = step_.run(batches(), options_.lr.at(done + 1)); previous && !evaluated)
      report(listener, *previous);
    ++done;
    evaluated = options_.eval_every > 0 && done % options_.eval_every == 0;
    if (evaluated) {
      report(listener, step_.finish());
      evaluate_now(listener, done);
    }
  }
  if (done > 0 && !evaluated) {
    report(listener, step_.finish());
    evaluate_now(listener, done);
  }
  return done;
}

// The loader's batches are good until it is asked again, so those of the first step stay good if it never is.
std::span<const HostBatch> TrainingRun::batches() {
  if (!options_.overfit_one_batch) return loader_.next();
  if (!kept_) kept_ = loader_.next();
  return *kept_;
}

void TrainingRun::report(RunListener& listener, const StepScalars& result) {
  const auto now = std::chrono::steady_clock::now();
  listener.on_step({result.attempt, result.loss, result.lr, result.grad_norm, result.clip,
                    std::chrono::duration<double>(now - last_).count(),
                    shape_.batch * shape_.context * shape_.micro_steps, 1 / result.unscale,
                    result.skip != 0});
  last_ = now;
}

void TrainingRun::evaluate_now(RunListener& listener, int64_t after) {
  if (!validation_) return;
  listener.on_evaluation(
      after, evaluate(ctx_, model_, validation_, shape_.batch, shape_.context, options_.eval_batches));
  last_ = std::chrono::steady_clock::now();  // the time it took is not a step's
}

}  // namespace kiln
