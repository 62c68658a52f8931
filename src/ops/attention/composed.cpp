// composed: attention as a textbook writes it, from ops that know nothing of each other; the tape finds its
// gradient. The scores and the probabilities exist whole, [B, H, Tq, Tk] each, and the probabilities are kept
// for backward, which makes the gradients of both: what flash saves is what this costs.
//
// A matmul does not know the mask. Masked probabilities are zero but still multiply the value there, and
// 0 * NaN is NaN: a NaN in v reaches every query of its head and not only those that see it,
// and so do, in backward, one in k (dq), in q (dk) and in the gradient of o (dv). Between finite numbers
// nothing crosses.
#include "autograd/region.h"
#include "ops/attention/attention.h"
#include "ops/batched_matmul/batched_matmul.h"
#include "ops/masked_softmax/masked_softmax.h"

namespace kiln {

namespace {

Tensor compiled_softmax_of(RankContext& ctx, const Tensor& scores, const MaskedSoftmaxOptions& options) {
  const Region region{"masked_softmax", cat(options.scale, options.causal ? " causal" : ""),
                      [options](RankContext& c, const RegionInputs& in) {
                        return Tensors{masked_softmax(c, in.tensors[0], options)};
                      },
                      /*in_place=*/1};  // nothing else reads the scores
  return compiled(ctx, region, {{scores}, {}})[0];
}

}  // namespace

Tensor attention_composed(RankContext& ctx, const AttentionProblem& p, const Tensor& q, const Tensor& k,
                          const Tensor& v, bool compiled_softmax) {
  Tensor scores, probs;  // [B, H, Tq, Tk]
  {
    const ScopeGuard part(ctx, "scores");
    scores = batched_matmul(ctx, q, k,
                            {.heads = p.H, .b_heads = p.Hkv, .transpose_b = true, .y_in_columns = false});
  }
  {
    const ScopeGuard part(ctx, "softmax");
    const MaskedSoftmaxOptions options{.scale = p.scale, .causal = p.causal};
    probs =
        compiled_softmax ? compiled_softmax_of(ctx, scores, options) : masked_softmax(ctx, scores, options);
  }
  const ScopeGuard part(ctx, "final_matmul");
  return batched_matmul(ctx, probs, v, {.heads = p.H, .b_heads = p.Hkv});  // [B, Tq, H D]
}

Cost attention_composed_cost(const AttentionProblem& p, Pass pass) {
  const BatchedMatmulProblem qk{p.B, p.H, p.Hkv, p.Tq, p.Tk, p.D, p.dtype, true, true, true, false},
      pv{p.B, p.H, p.Hkv, p.Tq, p.D, p.Tk, p.dtype, false, false, true, true};
  const MaskedSoftmaxProblem rows{p.B * p.H * p.Tq, p.Tq, p.Tk, p.dtype, p.scale, p.causal};
  return BatchedMatmulOp::cost(qk, pass) + MaskedSoftmaxOp::cost(rows, pass) +
         BatchedMatmulOp::cost(pv, pass);
}

}  // namespace kiln
