#include "dist/tensor/tensor_parallel.h"

#include "autograd/accumulate.h"
#include "autograd/tape.h"
#include "dist/tensor/vocab_loss.h"
#include "ops/embedding/embedding.h"

namespace kiln {
namespace {

// What its backward needs to find its way back.
struct Where {
  const TensorParallel* self;
};

// y as a separate value that depends on x. The memory may be the same.
Tensor recorded(RankContext& ctx, const TensorParallel* self, const Tensor& x, Tensor y, const char* name,
                void (*backward)(BackwardPass&)) {
  Tape& tape = ctx.tape();
  if (tape.mode() != GradMode::record || !tape.needs_grad(x)) return y;
  Node node;
  node.op = "tensor_parallel";
  node.variant = name;
  node.backward = backward;
  node.inputs.push_back(tape.value_index(x));
  const Where where{self};
  std::memcpy(node.problem, &where, sizeof where);
  tape.record(std::move(node), {&y});
  return y;
}

}  // namespace

TensorParallel::TensorParallel(RankContext& ctx, Communicator& comm, int64_t chunk_rows)
    : comm_(comm), chunk_rows_(chunk_rows), one_(ctx.empty({1}, DType::f32)) {
  const float one = 1;
  ctx.upload(one_, &one);
}

Tensor TensorParallel::enter_shards(RankContext& ctx, const Tensor& x) const {
  return recorded(ctx, this, x, x.detach(), "enter_shards", backward_of_enter);
}

Tensor TensorParallel::leave_shards(RankContext& ctx, const Tensor& y) const {
  Tensor sum = y.detach();
  comm_.all_reduce(ctx, sum, ctx.scope()).wait(ctx);
  return recorded(ctx, this, y, sum, "leave_shards", backward_of_leave);
}

// Each shard has the gradient of what it made of x.
void TensorParallel::backward_of_enter(BackwardPass& pass) {
  RankContext& ctx = pass.ctx();
  const bool alone = pass.grad_out().buffer().unique();
  Tensor dx = pass.grad_out();
  if (!dx.contiguous() || !alone) {  // it is a part of more, or it has other readers
    dx = ctx.empty(dx.shape(), dx.dtype());
    accumulate_grad(ctx, {dx, false}, pass.grad_out());
  }
  pass.problem<Where>().self->comm_.all_reduce(ctx, dx, ctx.scope()).wait(ctx);
  pass.adopt_grad(0, std::move(dx));
}

// Every shard is a summand: the sum's gradient is its own.
void TensorParallel::backward_of_leave(BackwardPass& pass) { pass.adopt_grad(0, pass.grad_out()); }

VocabPart TensorParallel::vocab_shard(int64_t vocab) const {
  const ShardRange here = of_vocab(vocab);
  return {here.begin, here.count, vocab};
}

Tensor TensorParallel::embed(RankContext& ctx, const Tensor& tokens, Param& weight, int64_t vocab) const {
  return leave_shards(ctx, embedding(ctx, local_ids(ctx, tokens, vocab_shard(vocab)), weight));
}

Tensor TensorParallel::loss(RankContext& ctx, const Tensor& x, Param& head, int64_t vocab,
                            const Tensor& targets) const {
  return vocab_parallel_loss(ctx, comm_, enter_shards(ctx, x), head, targets, vocab_shard(vocab), one_,
                             chunk_rows_);
}

Tensor TensorParallel::logits(RankContext&, const Tensor&, Param& head) const {
  throw Error(
      cat("the logits are cut into ", shard_count(), " shards, and ", head.name, " here makes one of them"),
      "the loss needs no more; a model that is to generate is held whole, --tp 1");
}

}  // namespace kiln
