#include "dist/tensor/vocab_loss.h"

#include <algorithm>

#include "autograd/tape.h"
#include "ops/check.h"
#include "ops/linear/linear.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/op_call.h"

namespace kiln {
namespace {

using Problem = LinearCrossEntropyProblem;

// Each chunk waits once for the other ranks and reads W twice; the logits of 64 MiB keep both small.
int64_t rows_at_a_time(const Problem& p) {
  constexpr int64_t kLogits = int64_t{64} << 20;
  const int64_t row = std::max<int64_t>(1, p.vocab) * static_cast<int64_t>(size_of(p.dtype));
  const int64_t most = p.chunk_rows > 0 ? p.chunk_rows : std::max<int64_t>(64, kLogits / row);
  return std::clamp<int64_t>(most, 1, std::max<int64_t>(1, p.rows));
}

// An op's backward kernel without a node on the tape, as watchers see it.
template <class Op>
void run_backward(RankContext& ctx, const OpCall<Op>& call, const typename Op::Problem& p,
                  const typename Op::Backward& arguments, std::initializer_list<NamedTensor> outputs) {
  watched(
      ctx, Op::kName, call.row().name, Pass::backward, [&] { return call.row().cost(p, Pass::backward); },
      outputs,
      [&] {
        if (!ctx.device().is_meta()) call.row().backward(ctx, arguments);
      });
}

// Rows [first, first + n) of everything.
struct Chunk {
  RankContext& ctx;
  Communicator& comm;
  const Problem& p;
  const Tensor &x, &weight, &targets;  // [rows, in], [vocab, in], ids of the part [rows]
  const Tensor &losses, &dx, &dweight;
  const Tensor& one;
  int64_t first, n;

  // Leaves each row's lse over all ranks.
  Tensor lose(const Tensor& logits, const Tensor& ids) const {
    const Tensor own = ctx.empty({n, 2}, DType::f32, Tag::comm);
    const Tensor all = ctx.empty({comm.world(), n, 2}, DType::f32, Tag::comm);
    Tensor lse = ctx.empty({n}, DType::f32, Tag::workspace);
    row_parts(ctx, logits, ids, own);
    comm.all_gather(ctx, own, all, "rows of the loss").wait(ctx);
    join_row_parts(ctx, all, ids, lse, losses.narrow(0, first, n));
    return lse;
  }

  void run() const {
    const LinearProblem product{n, p.in, p.vocab, p.dtype};
    const Tensor rows = x.narrow(0, first, n), ids = targets.narrow(0, first, n);
    const Tensor logits = ctx.empty({n, p.vocab}, p.dtype, Tag::workspace);
    const OpCall<LinearOp> linear(ctx, product);
    {
      const Tensor scratch = linear.workspace();
      linear.run({product, rows, weight, logits, scratch}, {{"y", logits}});
    }
    const Tensor lse = lose(logits, ids);
    if (!p.dx && !p.dweight) return;
    // Softmax over all columns less one at the target's, where it is here, in the place of the logits.
    const CrossEntropyProblem loss{n, p.vocab, p.dtype};
    const OpCall<CrossEntropyOp> entropy(ctx, loss);
    run_backward(ctx, entropy, loss, {loss, one, logits, ids, lse, one, {logits, false}},
                 {{"dlogits", logits}});
    const GradSlot to_x = p.dx ? GradSlot{dx.narrow(0, first, n), false} : GradSlot{};
    const GradSlot to_weight = p.dweight ? GradSlot{dweight, first > 0} : GradSlot{};
    const Tensor scratch = OpCall<LinearOp>::workspace_for(ctx, linear.row(), product, Pass::backward,
                                                           std::source_location::current());
    run_backward(ctx, linear, product, {product, logits, rows, weight, to_x, to_weight, scratch},
                 {{"dx", to_x.tensor}, {"dweight", to_weight.tensor}});
  }
};

}  // namespace

Tensor vocab_parallel_loss(RankContext& ctx, Communicator& comm, const Tensor& x, const ParamRef& weight,
                           const Tensor& targets, const VocabPart& here, const Tensor& one,
                           int64_t chunk_rows) {
  const char* op = LinearCrossEntropyOp::kName;
  check_float_tensor(ctx, op, "x", x);
  check_tensor(ctx, op, "targets", targets, DType::i32);
  if (weight.rows != here.rows)
    fail(op, cat("weight ", weight.shape().str(), " has not the ", here.rows, " rows from ", here.first,
                 " on of ", here.whole));
  if (targets.numel() != x.shape().rows() || weight.shape()[1] != x.shape().last())
    fail(op, cat("x ", x.shape().str(), ", weight ", weight.shape().str(), " and targets ",
                 targets.shape().str(), " do not match"));
  const bool recording = ctx.tape().mode() == GradMode::record;
  const Problem p{x.shape().rows(),
                  x.shape().last(),
                  weight.rows,
                  x.dtype(),
                  recording && ctx.tape().needs_grad(x),
                  recording && weight.param->trainable,
                  chunk_rows};
  const OpCall<LinearCrossEntropyOp> call(ctx, p, "fused");
  ParamUse w(ctx, weight, x.dtype(), ctx.tape().counts_uses());
  check_param_dtype(op, weight, w.tensor(), x.dtype());
  Tensor loss = ctx.empty({1}, DType::f32), dx, dweight, count;
  if (recording) {
    dx = call.extra("dx");
    dweight = call.extra("dweight");
    count = call.extra("count");
  }
  {
    const Tensor losses = ctx.empty({p.rows}, DType::f32, Tag::workspace);
    const Tensor ids = local_ids(ctx, targets.reshape({p.rows}), here), rows = x.reshape_rows();
    const int64_t each = rows_at_a_time(p);
    for (int64_t first = 0; first < p.rows; first += each) {
      Chunk{ctx,    comm, p,       rows, w.tensor(), ids,
            losses, dx,   dweight, one,  first,      std::min(each, p.rows - first)}
          .run();
    }
    mean_of_rows(ctx, losses, ids, loss, count);
  }
  call.record({&x}, {weight}, {&loss}, {{"dx", dx}, {"dweight", dweight}, {"count", count}});
  return loss;
}

}  // namespace kiln
