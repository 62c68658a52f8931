// What a step does when something is wrong: with its arguments, in the middle of it, or with its numbers.
#include <cmath>
#include <vector>

#include "autograd/tape.h"
#include "base/on_exit.h"
#include "train/non_finite.h"
#include "train/step.h"

namespace kiln {

StepOptions TrainStep::checked(const StepOptions& o) {
  if (o.batch < 1 || o.context < 1 || o.micro_steps < 1) {
    throw Error(cat("a step of ", o.micro_steps, " micro-steps of ", o.batch, " x ", o.context, " tokens"),
                "micro_steps, batch and context are all at least 1", ErrorKind::usage);
  }
  if (!(o.max_norm >= 0)) {
    throw Error(cat("max_norm is ", o.max_norm), "0 turns clipping off", ErrorKind::usage);
  }
  if (!(o.loss_scale.initial >= LossScaling::kSmallest) || !std::isfinite(o.loss_scale.initial)) {
    throw Error(cat("the loss scale is ", o.loss_scale.initial), "it starts at 1 or more; 65536 is usual",
                ErrorKind::usage);
  }
  if (o.loss_scale.interval < 0) {
    throw Error(cat("the loss scale grows every ", o.loss_scale.interval, " steps"), "2000 is usual",
                ErrorKind::usage);
  }
  return o;
}

// Before anything is queued: a step is run whole or not at all.
void TrainStep::check_arguments(std::span<const HostBatch> micro_batches, double lr) const {
  if (static_cast<int>(micro_batches.size()) != options_.micro_steps) {
    throw Error(cat("a step of ", options_.micro_steps, " micro-steps was given ", micro_batches.size(),
                    " micro-batches"));
  }
  for (const HostBatch& b : micro_batches) io_.check(b);
  if (!std::isfinite(lr)) throw Error(cat("the learning rate is ", lr));  // it would reach every weight
}

// After an error in the middle of a step. Whether a gradient is written or added to is decided on the host,
// by what this step has touched so far; a replayed region touches nothing there, so one captured next to it
// would decide wrongly. All restart.
void TrainStep::forget_graphs() {
  for (CapturedRegion* r : {&first_micro_, &next_micro_, &update_}) r->forget();
}

// The update of a bad step, and of every later one, wrote nothing: the weights are those it started from.
void TrainStep::check_finite(const StepScalars& result) {
  if (result.bad_attempt == 0) return;
  bad_ = explain(result);
  ctx_.tape().reset();  // the replay may have ended in the middle of it
  throw Error(*bad_);
}

// All ranks come here, for finite is the same on all: they can take part in the replay's
// collectives. A rank whose own op failed leaves it early and fails, and the others are notified.
Error TrainStep::explain(const StepScalars& result) {
  auto error = [&](const std::string& culprit, const char* remedy) {
    return Error(cat("step ", result.bad_attempt, " is not finite: ", culprit),
                 cat("the weights are as step ", result.step, " left them; ", remedy));
  };
  try {
    replay(result.bad_attempt);
  } catch (const Error& e) {
    return error(e.what(), scales_loss() ? "no loss scale helps: train in bf16, or lower the learning rate"
                                         : "lower the learning rate or look at that batch");
  }
  StepScalars again;
  ctx_.download(&again, io_.scalars());
  if (std::isfinite(again.loss) && std::isfinite(again.square_sum)) {
    return error("the step was finite when run again: suspect the hardware",
                 "run it again on another device");
  }
  const bool alone = ctx_.world() == 1;
  return error(cat("every op ", alone ? "" : "on this rank ", "was finite, ",
                   alone ? "a sum over the step" : "the sum over ranks", " was not: loss ", again.loss,
                   ", sum of squared gradients ", again.square_sum, bad_gradient()),
               "gradients this large overflow when summed: lower the learning rate, or look at what makes "
               "them so large in that batch");
}

// The first element of this rank's summed gradients that is not finite; a shard may have none where another
// has.
std::string TrainStep::bad_gradient() {
  for (const ParamSpan& span : optimizer_->spans()) {
    double value = 0;
    const int64_t at = first_non_finite(ctx_, span.grad, value);
    if (at >= 0) return cat("; the gradient of ", span.name, " holds ", value, " at element ", at);
  }
  return {};
}

// Throws at the first output that is not finite.
void TrainStep::replay(int64_t attempt) {
  forget_graphs();
  pool_.clear();  // frees memory for the activations of an eager run
  NonFiniteFinder finder;
  ctx_.add_observer(&finder);
  const OnExit leave([&] { ctx_.remove_observer(&finder); });
  model_.params().begin_step();
  strategy_.begin_step();
  for (int i = 0; i < options_.micro_steps; ++i) {
    io_.reload(attempt, i);
    strategy_.begin_micro_step(i + 1 == options_.micro_steps);
    micro_step(i == 0);
    strategy_.end_micro_step();
  }
  reduce_gradients();  // each op may be finite and their sum not
}

}  // namespace kiln
