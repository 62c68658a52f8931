#include "dist/ddp.h"

#include <algorithm>
#include <cstddef>

#include "ops/step_scalars/step_scalars.h"

namespace kiln {

void DdpStrategy::attach(ParamStore& params) {
  params_ = &params;
  params.set_hooks(this);
}

void DdpStrategy::begin_step() {
  reduced_.clear();
  in_flight_.clear();
}

void DdpStrategy::grad_ready(Param& p) {
  if (!last_) return;
  zero_untouched_rows(ctx_, p);  // now: later it would race with the sum
  reduced_.push_back(&p);
  in_flight_.push_back(comm_.all_reduce(ctx_, params_->local_grad(p), p.name));
}

void DdpStrategy::finish_gradients() {
  // A parameter the loss did not reach on this rank may have been reached on another. Here all ranks walk the
  // same list, but what was reached has been reduced in the order of backward: a rank that skipped a
  // parameter others reached before their last one is out of step with them. The communicator compares names
  // and says so.
  for (Param& p : params_->params()) {
    if (p.trainable && std::find(reduced_.begin(), reduced_.end(), &p) == reduced_.end()) grad_ready(p);
  }
  for (const CommHandle& h : in_flight_) h.wait(ctx_);
}

void DdpStrategy::reduce_scalars(const Tensor& scalars) {
  // Gradients are the same everywhere, so is their norm; only the loss is each rank's own.
  const Tensor loss = scalars.narrow(0, offsetof(StepScalars, loss), sizeof(double)).view_as(DType::f64);
  comm_.all_reduce(ctx_, loss, "loss").wait(ctx_);
}

}  // namespace kiln
