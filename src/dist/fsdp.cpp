#include "dist/fsdp.h"

#include <cstddef>

#include "ops/step_scalars/step_scalars.h"

namespace kiln {

FsdpStrategy::FsdpStrategy(RankContext& ctx, Communicator& comm, const FsdpOptions& options)
    : ctx_(ctx), comm_(comm), slots_(ctx, comm, options.prefetch), grads_(ctx, comm, options.prefetch) {}

void FsdpStrategy::attach(ParamStore& params) {
  params_ = &params;
  slots_.attach(params);
  grads_.attach(params);
  params.set_hooks(this);
}

void FsdpStrategy::begin_step() {
  slots_.drop();  // a step before that broke off may have left something; weights may have changed since
  grads_.begin_step();
}

void FsdpStrategy::begin_micro_step(bool /*last*/) { slots_.begin_micro_step(); }

void FsdpStrategy::gather(Param& p, DType as) {
  if (p.shards > 1) slots_.acquire(p, as);
}

void FsdpStrategy::release(Param& p) {
  if (p.shards > 1) slots_.release(p);
}

void FsdpStrategy::grad_begin(Param& p) {
  if (p.shards > 1) grads_.begin(p);
}

void FsdpStrategy::grad_ready(Param& p) {
  if (p.shards > 1) grads_.ready(p);
}

void FsdpStrategy::finish_gradients() {
  slots_.end_micro_step();
  grads_.finish();
  for (Param& p : params_->params()) {
    if (p.shards == 1 || !p.trainable || grads_.written(p)) continue;
    const Tensor shard = params_->local_grad(p);
    ctx_.backend().zero(shard.raw(), shard.bytes().value, ctx_.compute());
  }
  // What every rank has whole lies in one piece: one message a step.
  const Tensor whole = params_->whole_grads();
  if (whole.numel() > 0) comm_.all_reduce(ctx_, whole, "norms").wait(ctx_);
}

void FsdpStrategy::reduce_scalars(const Tensor& scalars) {
  static_assert(offsetof(StepScalars, square_sum) == offsetof(StepScalars, loss) + sizeof(double));
  // Each rank has the loss of its tokens and the squares of its shards.
  const Tensor both = scalars.narrow(0, offsetof(StepScalars, loss), 2 * sizeof(double)).view_as(DType::f64);
  comm_.all_reduce(ctx_, both, "loss and squares").wait(ctx_);
}

}  // namespace kiln
