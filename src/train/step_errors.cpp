// What a step does when something is wrong: with its arguments, in the middle of it, or with its numbers.
#include <algorithm>
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

// The update of a step that was not finite wrote nothing: the weights are those it started from. All ranks
// come here, for finite is the same on all.
void TrainStep::check_finite(const StepScalars& result) {
  const bool skipped = result.bad_attempt == 0 && result.skip != 0 && result.skips_in_row > 0;
  if (result.bad_attempt == 0 && (!skipped || result.attempt <= explained_)) return;
  const char* remedy = "";
  BadStep bad = diagnose(result, remedy);
  ctx_.tape().reset();  // the replay may have ended in the middle of it
  explained_ = bad.step;
  if (tell_bad_) tell_bad_(bad);
  if (skipped) return;
  const std::string before =
      result.skips_in_row == 0 ? "" : cat("; the ", result.skips_in_row, " steps before it were skipped");
  const bool damaged = bad.what.find("the weight ") != std::string::npos;
  bad_ = Error(cat("step ", bad.step, " is not finite: ", bad.what, before),
               damaged ? "the weights in memory are damaged: resume from a checkpoint"
                       : cat("the weights are as step ", bad.step - 1, " left them; ", remedy));
  throw Error(*bad_);
}

BadStep TrainStep::diagnose(const StepScalars& result, const char*& remedy) {
  BadStep bad;
  bad.skipped = result.bad_attempt == 0;
  bad.step = bad.skipped ? result.attempt : result.bad_attempt;
  bad.in_row = result.skips_in_row;
  bad.loss = result.loss;
  bad.square_sum = result.square_sum;
  bad.batches = io_.batches(bad.step);
  remedy = scales_loss() ? "no loss scale helps: train in bf16, or lower the learning rate"
                         : "lower the learning rate or look at that batch";
  find_bad_weight(bad);
  const bool damaged = !bad.what.empty();
  try {
    NonFiniteFinder finder;
    replay(bad.step, finder);
    if (!damaged) {
      bad.what = finder.found();
      bad.tensor = finder.tensor();
      bad.shape = finder.shape();
      bad.values = finder.values();
    }
    bad.what = first_of_ranks(bad.what, damaged ? 0 : finder.op());
    if (bad.what.empty()) explain_sum(bad, remedy);
  } catch (const Error& e) {
    bad.what = e.what();
  }
  return bad;
}

// No op's output was to blame.
void TrainStep::explain_sum(BadStep& bad, const char*& remedy) {
  StepScalars again;
  ctx_.download(&again, io_.scalars());
  if (std::isfinite(again.loss) && std::isfinite(again.square_sum)) {
    remedy = "run it again on another device";
    bad.what = "the step was finite when run again: suspect the hardware";
    return;
  }
  remedy =
      "gradients this large overflow when summed: lower the learning rate, or look at what makes them so "
      "large in that batch";
  const bool alone = ctx_.world() == 1;
  find_bad_gradient(bad);
  const std::string gradient = first_of_ranks(bad.what);
  bad.what = cat("every op ", alone ? "" : "on this rank ", "was finite, ",
                 alone ? "a sum over the step" : "the sum over ranks", " was not: loss ", again.loss,
                 ", sum of squared gradients ", again.square_sum, gradient.empty() ? "" : "; ", gradient);
}

// A weight that is not finite itself: every op that reads it would be blamed for it.
void TrainStep::find_bad_weight(BadStep& bad) {
  const ParamStore& params = model_.params();
  for (const Param& p : params.params()) {
    double value = 0;
    const Tensor weight = params.local_value(p);
    const int64_t at = first_non_finite(ctx_, weight, value);
    if (at < 0) continue;
    bad.what = cat("the weight ", p.name, " holds ", value, " at element ", at, " before the step");
    bad.tensor = p.name;
    bad.shape = weight.shape();
    bad.values = float_values(ctx_, weight);
    return;
  }
}

// What the rank has found that was first: in the earliest op, since from there a sum carries it to the
// others. Where this one was as early, its own. Text as numbers, whose sum over ranks is theirs where all
// others bring zeros.
std::string TrainStep::first_of_ranks(const std::string& mine, int64_t op) {
  const int rank = model_.params().data_rank(), world = model_.params().data_world();
  if (world == 1) return mine;
  constexpr std::size_t kLetters = 512, kEach = kLetters + 2;  // behind size and op
  std::vector<double> numbers(static_cast<std::size_t>(world) * kEach);
  const auto of = [&](int r) {
    return std::span(numbers).subspan(static_cast<std::size_t>(r) * kEach, kEach);
  };
  const std::size_t size = std::min(mine.size(), kLetters);
  of(rank)[0] = static_cast<double>(size);
  of(rank)[1] = static_cast<double>(op);
  for (std::size_t i = 0; i < size; ++i) of(rank)[2 + i] = static_cast<unsigned char>(mine[i]);
  const Tensor shared = ctx_.empty({static_cast<int64_t>(numbers.size())}, DType::f64, Tag::workspace);
  ctx_.upload(shared, numbers.data());
  strategy_.sum_over_ranks(shared, "first tensor that is not finite");
  ctx_.download(numbers.data(), shared);
  int first = size > 0 ? rank : -1;
  for (int r = 0; r < world; ++r) {
    if (of(r)[0] > 0 && (first < 0 || of(r)[1] < of(first)[1])) first = r;
  }
  if (first < 0 || first == rank) return mine;
  std::string words = cat("on rank ", first, ": ");
  for (std::size_t i = 0; i < static_cast<std::size_t>(of(first)[0]); ++i)
    words.push_back(static_cast<char>(static_cast<unsigned char>(of(first)[2 + i])));
  return words;
}

// The first element of this rank's summed gradients that is not finite; a shard may have none where another
// has.
void TrainStep::find_bad_gradient(BadStep& bad) {
  for (const ParamSpan& span : optimizer_->spans()) {
    double value = 0;
    const int64_t at = first_non_finite(ctx_, span.grad, value);
    if (at < 0) continue;
    bad.what = cat("the gradient of ", span.name, " holds ", value, " at element ", at);
    bad.tensor = cat("gradient of ", span.name);
    bad.shape = span.grad.shape();
    bad.values = float_values(ctx_, span.grad);
    return;
  }
}

// Of ranks that hold the same gradients each sums the squares of its piece only. What is not finite in the
// copy of one rank alone, in a piece of another's, would then reach its weights. So each adds zero times the
// sum of all it updates to its loss: nothing, or NaN, which all ranks see in the loss of the step.
void TrainStep::check_summed_gradients() {
  std::vector<Tensor> all;
  for (const ParamSpan& span : optimizer_->spans()) all.push_back(span.grad);
  square_sum(ctx_, all, own_squares_);
  accumulate_loss(ctx_, loss_and_squares(own_squares_).narrow(0, 1, 1), io_.scalars(), false, 0);
}

// To its end, whatever is found on the way.
void TrainStep::replay(int64_t attempt, OpObserver& finder) {
  forget_graphs();
  pool_.clear();  // frees memory for the activations of an eager run
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
