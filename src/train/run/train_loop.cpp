#include "train/run/train_loop.h"

#include <algorithm>

namespace kiln {

TrainLoop::TrainLoop(RankContext& ctx, Model& model, TrainStep& step, const StepOptions& shape,
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

// The result of a step comes while the next one runs, so its time is kept until then. Where the device works
// by itself, a call waits for the step before: there the times are those of the steps, one later.
int64_t TrainLoop::run(RunListener& listener, const std::atomic<bool>& stop) {
  int64_t done = options_.first;
  bool paused = true;  // after step `done`, and its result was reported
  while (done < options_.steps && !is_to_stop(stop)) {
    for (StepHook* hook : options_.hooks) hook->before_step(done + 1);
    const double before = seconds_, waited_before = host_wait_ms_;
    const Clock::time_point start = Clock::now();
    const std::span<const HostBatch> input = batches();
    host_wait_ms_ = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    const auto previous = step_.run(input, options_.lr.at(done + 1));
    seconds_ = std::chrono::duration<double>(Clock::now() - start).count();
    if (previous && !paused) report(listener, *previous, before, waited_before);
    paused = pause_after(++done);
    const StepScalars result = paused ? finish_step(listener) : StepScalars();
    for (StepHook* hook : options_.hooks) hook->after_step(done);
    if (paused) pause(listener, result);
  }
  if (done > options_.first) {
    if (!paused) finish_step(listener);
    finish(listener, done, is_to_stop(stop));
  }
  return done;
}

// Asked once more after a yes, the others would be asked without this rank.
bool TrainLoop::is_to_stop(const std::atomic<bool>& stop) {
  if (!stopping_) stopping_ = options_.agree_to_stop ? options_.agree_to_stop(stop) : stop.load();
  return stopping_;
}

StepScalars TrainLoop::finish_step(RunListener& listener) {
  const Clock::time_point start = Clock::now();
  const StepScalars result = step_.finish();
  report(listener, result, seconds_ + std::chrono::duration<double>(Clock::now() - start).count(),
         host_wait_ms_);
  return result;
}

bool TrainLoop::pause_after(int64_t step) const {
  const auto wants = [step](const StepHook* hook) { return hook->needs_result(step); };
  return options_.results_at_once || is_due(options_.eval_every, step) || is_due(options_.save_every, step) ||
         is_due(options_.sample_every, step) ||
         std::any_of(options_.hooks.begin(), options_.hooks.end(), wants);
}

// What wants the device for itself. Saving comes first: whatever happens in the rest, the work is safe.
void TrainLoop::pause(RunListener& listener, const StepScalars& result) {
  const int64_t step = result.attempt;
  if (is_due(options_.save_every, step)) listener.on_save(result);
  if (is_due(options_.eval_every, step)) evaluate_now(listener, step);
  if (is_due(options_.sample_every, step)) listener.on_sample(step);
}

// After the last step saving and validation are due, where a pause has not just done them. Who asked the run
// to stop may be about to kill it: then only what must be is done.
void TrainLoop::finish(RunListener& listener, int64_t step, bool stopped) {
  if (!is_due(options_.save_every, step)) listener.on_save(step_.finish());
  if (!is_due(options_.eval_every, step) && !stopped) evaluate_now(listener, step);
}

// The loader's batches are good until it is asked again, so those of the first step stay good if it never is.
std::span<const HostBatch> TrainLoop::batches() {
  if (!options_.overfit_one_batch) return loader_.next();
  if (!kept_) kept_ = loader_.next();
  return *kept_;
}

void TrainLoop::report(RunListener& listener, const StepScalars& result, double seconds,
                       double host_wait_ms) {
  listener.on_step({result.attempt, result.loss, result.lr, result.grad_norm, result.clip, seconds,
                    shape_.batch * shape_.context * shape_.micro_steps * model_.params().data_world(),
                    1 / result.unscale, result.skip != 0, host_wait_ms, step_.stall_ms(),
                    ctx_.allocator().stats().peak_total});
}

// Every rank evaluates the same text, that of a single process: weights that are gathered on use need them
// all.
void TrainLoop::evaluate_now(RunListener& listener, int64_t after) {
  if (!validation_) return;
  listener.on_evaluation(
      after, evaluate(ctx_, model_, validation_, shape_.batch, shape_.context, options_.eval_batches));
}

}  // namespace kiln
