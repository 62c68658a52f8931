// What a step does when something is wrong: with its arguments, in the middle of it, or with its numbers.
#include <cmath>

#include "autograd/tape.h"
#include "base/on_exit.h"
#include "perf/non_finite.h"
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
// by what this step has touched so far; a replayed region touches nothing there, so one captured beside it
// would decide wrongly. All start anew.
void TrainStep::forget_graphs() {
  for (CapturedRegion* r : {&first_micro_, &next_micro_, &update_}) r->forget();
}

// The update of a bad step, and of every later one, wrote nothing: the weights are those it started from.
void TrainStep::check_finite(const StepScalars& result) {
  if (result.bad_attempt == 0) return;
  std::string culprit = "the step was finite when run again: suspect the hardware";
  try {
    replay(result.bad_attempt);
  } catch (const Error& e) {
    culprit = e.what();
  }
  ctx_.tape().reset();  // the replay ended in the middle of it
  throw Error(cat("step ", result.bad_attempt, " is not finite: ", culprit),
              cat("the weights are as step ", result.step,
                  " left them; lower the learning rate or look at that batch"));
}

// Throws at the first output that is not finite.
void TrainStep::replay(int64_t attempt) {
  forget_graphs();
  pool_.clear();  // room for the activations of an eager run
  NonFiniteFinder finder;
  ctx_.add_observer(&finder);
  const OnExit leave([&] { ctx_.remove_observer(&finder); });
  model_.params().begin_step();
  strategy_.begin_step();
  for (int i = 0; i < options_.micro_steps; ++i) {
    io_.reload(attempt, i);
    strategy_.begin_micro_step(i + 1 == options_.micro_steps);
    micro_step(i == 0);
  }
}

}  // namespace kiln
