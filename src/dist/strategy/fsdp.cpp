#include "dist/strategy/fsdp.h"

namespace kiln {

FsdpStrategy::FsdpStrategy(RankContext& ctx, Communicator& comm, const FsdpOptions& options)
    : ctx_(ctx),
      comm_(comm),
      chunks_(options.chunks),
      slots_(ctx, comm, options.prefetch),
      grads_(ctx, comm, options.prefetch) {}

void FsdpStrategy::attach(ParamStore& params) {
  params_ = &params;
  slots_.attach(params);
  grads_.attach(params);
  params.set_hooks(this);
  if (chunks_ > 0) tree_.emplace(ctx_, params.grads(), chunks_);
}

void FsdpStrategy::begin_step() {
  slots_.drop();  // a step before that broke off may have left something; weights may have changed since
  grads_.begin_step();
  chunk_ = 0;
}

void FsdpStrategy::begin_micro_step(bool /*last*/) {
  if (tree_) params_->begin_step();  // each chunk's gradients by themselves
  slots_.begin_micro_step();
}

// Of a tree each chunk is complete before the next begins, the norms with it.
void FsdpStrategy::end_micro_step() {
  if (!tree_) return;
  params_->finish_gradients(ctx_);
  complete();
  tree_->fold(params_->grads(), chunk_++);
  grads_.begin_step();
}

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
  if (!tree_) complete();  // else each micro-step ended with it
}

// What this rank keeps of the gradients is that of all ranks when this returns.
void FsdpStrategy::complete() {
  grads_.finish();
  for (Param& p : params_->params()) {
    if (p.shards == 1 || !p.trainable || grads_.written(p)) continue;
    const Tensor shard = params_->local_grad(p);
    ctx_.backend().zero(shard.raw(), shard.bytes().value, ctx_.compute());
  }
  // What every rank has whole is in one piece: one message a step.
  const Tensor whole = params_->whole_grads();
  if (whole.numel() > 0) comm_.all_reduce(ctx_, whole, "norms").wait(ctx_);
}

std::vector<ParamSpan> FsdpStrategy::spans(const ParamStore& params, SpanUnit unit) const {
  if (unit == SpanUnit::matrices && comm_.world() > 1) refuse_whole_matrices("fsdp");
  return params.spans();
}

// Of the two of a step: each rank has the loss of its tokens and the squares of its shards.
void FsdpStrategy::sum_over_ranks(const Tensor& numbers, std::string_view what) {
  comm_.all_reduce(ctx_, numbers, what).wait(ctx_);
}

}  // namespace kiln
