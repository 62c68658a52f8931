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
  int64_t done = options_.first;
  bool paused = true;  // after step `done`, and its result was reported
  while (done < options_.steps && !stop) {
    const auto previous = step_.run(batches(), options_.lr.at(done + 1));
    if (previous && !paused) report(listener, *previous);
    paused = pause_after(++done);
    if (paused) pause(listener, done, false);
  }
  if (done > options_.first) {
    if (!paused) report(listener, step_.finish());
    pause(listener, done, true);
  }
  return done;
}

bool TrainingRun::pause_after(int64_t step) const {
  return is_due(options_.eval_every, step) || is_due(options_.save_every, step) ||
         is_due(options_.sample_every, step);
}

// What wants the device for itself. After the last step all of it is due; the part that already was is not
// done twice.
void TrainingRun::pause(RunListener& listener, int64_t step, bool last) {
  const StepScalars result = step_.finish();
  if (!last) report(listener, result);
  const auto due = [&](int64_t every) { return is_due(every, step) != last; };
  if (due(options_.eval_every)) evaluate_now(listener, step);
  if (due(options_.save_every)) listener.on_save(result);
  if (options_.sample_every > 0 && due(options_.sample_every)) listener.on_sample(step);
  last_ = std::chrono::steady_clock::now();  // the time it took is not a step's
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
                    shape_.batch * shape_.context * shape_.micro_steps});
  last_ = now;
}

void TrainingRun::evaluate_now(RunListener& listener, int64_t after) {
  if (!validation_) return;
  listener.on_evaluation(
      after, evaluate(ctx_, model_, validation_, shape_.batch, shape_.context, options_.eval_batches));
}

}  // namespace kiln
