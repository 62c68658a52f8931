#include "dist/fsdp.h"

#include <cstddef>

#include "autograd/accumulate.h"
#include "ops/step_scalars/step_scalars.h"

namespace kiln {

void FsdpStrategy::attach(ParamStore& params) {
  params_ = &params;
  params.set_hooks(this);
}

void FsdpStrategy::begin_step() {
  for (auto& [p, s] : states_) s.shard_written = false;
}

void FsdpStrategy::gather(Param& p) {
  State& s = states_[&p];
  if (s.users == 0) {
    const Tensor shard = params_->local_value(p);
    const Tensor full = ctx_.empty({p.padded}, shard.dtype(), Tag::comm);
    comm_.all_gather(ctx_, shard, full, p.name).wait(ctx_);
    p.value = full.narrow(0, 0, p.shape.numel()).reshape(p.shape);
  }
  ++s.users;  // last: a gather that failed has no user
}

void FsdpStrategy::release(Param& p) {
  if (--states_[&p].users == 0) p.value = {};
}

void FsdpStrategy::grad_begin(Param& p) {
  State& s = states_[&p];
  if (s.full_grad.defined()) return;
  s.full_grad = ctx_.empty({p.padded}, params_->grads().dtype(), Tag::comm);
  const int64_t n = p.shape.numel();
  const Tensor padding = s.full_grad.narrow(0, n, p.padded - n);  // summed with the rest: must be zero
  ctx_.backend().zero(padding.raw(), padding.bytes().value, ctx_.compute());
  p.grad = s.full_grad.narrow(0, 0, n).reshape(p.shape);
  p.touched.clear();
}

void FsdpStrategy::grad_ready(Param& p) {
  State& s = states_[&p];
  if (!s.full_grad.defined()) return;  // uses in forward, but no contribution reached it
  zero_untouched_rows(ctx_, p);
  const Tensor shard = params_->local_grad(p);
  if (!s.shard_written) {
    comm_.reduce_scatter(ctx_, s.full_grad, shard, p.name).wait(ctx_);
  } else {
    const Tensor part = ctx_.empty(shard.shape(), shard.dtype(), Tag::comm);
    comm_.reduce_scatter(ctx_, s.full_grad, part, p.name).wait(ctx_);
    accumulate_grad(ctx_, {shard, true}, part);
  }
  s.shard_written = true;
  s.full_grad = {};
  p.grad = {};
  p.touched.clear();
}

void FsdpStrategy::finish_gradients() {
  for (Param& p : params_->params()) {
    if (!p.trainable || states_[&p].shard_written) continue;
    const Tensor shard = params_->local_grad(p);
    ctx_.backend().zero(shard.raw(), shard.bytes().value, ctx_.compute());
  }
}

void FsdpStrategy::reduce_scalars(const Tensor& scalars) {
  static_assert(offsetof(StepScalars, square_sum) == offsetof(StepScalars, loss) + sizeof(double));
  // Each rank has the loss of its tokens and the squares of its shards.
  const Tensor both = scalars.narrow(0, offsetof(StepScalars, loss), 2 * sizeof(double)).view_as(DType::f64);
  comm_.all_reduce(ctx_, both, "loss and squares").wait(ctx_);
}

}  // namespace kiln
