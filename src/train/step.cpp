#include "train/step.h"

#include "autograd/tape.h"

namespace kiln {

std::optional<StepScalars> TrainStep::run(std::span<const HostBatch> micro_batches, double lr) {
  if (bad_) throw Error(*bad_);
  check_arguments(micro_batches, lr);
  try {
    queue(micro_batches, lr);
  } catch (...) {
    forget_graphs();
    throw;
  }
  if (attempt_ == restored_ + 1) return std::nullopt;  // the first: nothing came before it
  return result(attempt_ - 1);
}

void TrainStep::queue(std::span<const HostBatch> micro_batches, double lr) {
  io_.begin(attempt_ + 1, lr);
  io_.take(micro_batches);
  model_.params().begin_step();
  strategy_.begin_step();
  for (int i = 0; i < options_.micro_steps; ++i) {
    io_.load(i);
    strategy_.begin_micro_step(i + 1 == options_.micro_steps);
    (i == 0 ? first_micro_ : next_micro_).run([&] { micro_step(i == 0); });
    strategy_.end_micro_step();
  }
  update_.run([&] { update(); });
  io_.end();
  ++attempt_;
}

void TrainStep::micro_step(bool first) {
  const PhaseGuard phase(ctx_, Phase::forward);  // until the tape says otherwise
  ctx_.tape().reset();
  const Tensor loss = model_.loss(ctx_, io_.tokens(), io_.targets());  // forward
  accumulate_loss(ctx_, loss, io_.scalars(), first, grad_scale());     // for the report
  if (scales_loss()) loss_gradient(ctx_, io_.scalars(), grad_scale(), loss_grad_);
  ctx_.tape().backward(loss, loss_grad_);  // backward; hooks share gradients out as they complete
}

void TrainStep::reduce_gradients() {  // over micro-steps and ranks
  model_.params().finish_gradients(ctx_);
  strategy_.finish_gradients();
  if (own_squares_.defined()) check_summed_gradients();
  if (canonical_) return canonical_->sum(io_.scalars());
  square_sum(ctx_, strategy_.own_grads(model_.params()), io_.scalars());
  strategy_.reduce_scalars(io_.scalars());
}

void TrainStep::update() {
  const PhaseGuard phase(ctx_, Phase::update);
  reduce_gradients();
  finish_step_scalars(ctx_, io_.scalars(), options_.max_norm, optimizer_->rates(),
                      scales_loss() ? options_.loss_scale.interval : 0, options_.max_skips);
  optimizer_->step(ctx_,
                   io_.scalars());  // of this rank's spans; writes nothing in a step that was not finite
  strategy_.after_update();         // other ranks' come back
}

StepScalars TrainStep::finish() {
  if (bad_) throw Error(*bad_);
  if (attempt_ == 0) throw Error("finish() before the first step: there is no result yet");
  return result(attempt_);
}

StepScalars TrainStep::result(int64_t attempt) {
  const StepScalars result = io_.result(attempt);
  stall_ms_ = io_.stall_ms(attempt);
  check_finite(result);
  return result;
}

}  // namespace kiln
