#include "dist/strategy/grad_scatter.h"

#include "autograd/accumulate.h"

namespace kiln {

void GradScatter::begin_step() {
  drop();
  states_.clear();
}

void GradScatter::begin(Param& p) {
  State& s = states_[&p];
  if (s.whole.defined()) return;
  s.whole = ctx_.empty({p.padded}, params_->grads().dtype(), Tag::comm);
  const int64_t n = p.shape.numel();
  const Tensor padding = s.whole.narrow(0, n, p.padded - n);  // summed with the rest: must be zero
  ctx_.backend().zero(padding.raw(), padding.bytes().value, ctx_.compute());
  p.grad = s.whole.narrow(0, 0, n).reshape(p.shape);
  p.touched.clear();
}

void GradScatter::ready(Param& p) {
  State& s = states_[&p];
  if (!s.whole.defined()) return;  // uses in forward, but no contribution reached it
  zero_untouched_rows(ctx_, p);
  Sum sum;
  sum.whole = std::move(s.whole);
  sum.shard = params_->local_grad(p);
  if (s.written) sum.part = ctx_.empty(sum.shard.shape(), sum.shard.dtype(), Tag::comm);
  sum.handle = comm_.reduce_scatter(ctx_, sum.whole, s.written ? sum.part : sum.shard, p.name);
  s.written = true;
  p.grad = {};
  p.touched.clear();
  sums_.push_back(std::move(sum));
  while (static_cast<int>(sums_.size()) > beside_) retire();
}

// In the order they were started, so that what is added to a shard follows what was written there.
void GradScatter::retire() {
  const Sum& sum = sums_.front();
  sum.handle.wait(ctx_);
  if (sum.part.defined()) accumulate_grad(ctx_, {sum.shard, true}, sum.part);
  sums_.pop_front();
}

void GradScatter::finish() {
  while (!sums_.empty()) retire();
  for (const auto& [p, s] : states_) {
    if (s.whole.defined()) throw Error(cat("the gradient of ", p->name, " is not complete"));
  }
}

void GradScatter::drop() {
  for (const Sum& sum : sums_) {
    try {
      sum.handle.wait(ctx_);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the step is given up; who comes to
    }  // the next collective gets the error
  }
  sums_.clear();
}

}  // namespace kiln
