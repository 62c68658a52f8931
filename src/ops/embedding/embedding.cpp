#include "ops/embedding/embedding.h"

#include "ops/check.h"
#include "ops/cuda_fused.h"
#include "ops/embedding/cuda_sort.h"
#include "ops/op_call.h"

namespace kiln {
namespace {

Cost cost(const EmbeddingProblem& p, Pass pass) {
  const double row_bytes = static_cast<double>(p.cols) * static_cast<double>(size_of(p.dtype));
  const double tokens = static_cast<double>(p.tokens);
  if (pass == Pass::forward) return {0, 2 * tokens * row_bytes + 4 * tokens};
  const double grad_bytes = static_cast<double>(p.vocab) * static_cast<double>(p.cols) * 4;
  return {tokens * static_cast<double>(p.cols), tokens * row_bytes + grad_bytes + 4 * tokens};
}

const SaveDecl<EmbeddingProblem> kSaves[] = {
    {"tokens", SavedFrom::input, [](const EmbeddingProblem& p) { return Shape{p.tokens}; },
     [](const EmbeddingProblem&) { return DType::i32; }},
};

std::size_t fused_workspace(const EmbeddingProblem& p, Pass pass) {
  return pass == Pass::backward ? EmbeddingScratch(p).total : 0;
}

const Variant<EmbeddingOp> kRows[] = {
    {"naive", DeviceType::cpu, nullptr, kSaves, nullptr, cost, embedding_cpu_naive_forward,
     embedding_cpu_naive_backward, "embedding/cpu_naive.cpp"},
    {"fused", DeviceType::cuda, needs_packs<EmbeddingProblem>, kSaves, fused_workspace, cost,
     KILN_CUDA_FN(embedding_cuda_fused_forward), KILN_CUDA_FN(embedding_cuda_fused_backward),
     Kernels("embedding_fused_forward_kernel",
             "count_kernel start_kernel place_kernel order_kernel run_sums_kernel "
             "embedding_fused_backward_kernel")},
    {"naive", DeviceType::cuda, nullptr, kSaves, nullptr, cost, KILN_CUDA_FN(embedding_cuda_naive_forward),
     KILN_CUDA_FN(embedding_cuda_naive_backward), Kernels("forward_kernel", "backward_kernel")},
};

}  // namespace

std::span<const Variant<EmbeddingOp>> EmbeddingOp::rows() { return kRows; }

Tensor embedding(RankContext& ctx, const Tensor& tokens, const ParamRef& weight, std::string_view variant) {
  check_tensor(ctx, EmbeddingOp::kName, "tokens", tokens, DType::i32);
  ParamUse w(weight, ctx.tape().counts_uses());
  if (weight.shape().rank() != 2)
    fail(EmbeddingOp::kName, cat("weight is ", weight.shape().str(), ", [vocab, C] is needed"));
  const EmbeddingProblem p{tokens.numel(), weight.shape()[0], weight.shape()[1], w.tensor().dtype(),
                           vectorizable(w.tensor())};
  OpCall<EmbeddingOp> call(ctx, p, variant);
  Shape shape = tokens.shape();
  shape.push_back(p.cols);
  Tensor y = ctx.empty(shape, p.dtype);
  const Tensor flat = tokens.reshape({p.tokens});
  call.run({p, flat, w.tensor(), y}, {{"y", y}});
  call.record({}, {weight}, {&y}, {{"tokens", flat}});
  return y;
}

void EmbeddingOp::run_backward(BackwardPass& pass) {
  BackwardCall<EmbeddingOp> call(pass);
  const GradSlot dw = param_grad(pass.param(0));
  if (dw.wanted()) {
    EmbeddingProblem p = call.problem();
    p.vectorizable = all_vectorizable(pass.grad_out(), dw.tensor);
    call.choose(p);
    const Tensor workspace = call.workspace();
    call.run({p, pass.grad_out(), pass.saved("tokens"), dw, workspace}, {{"dweight", dw.tensor}});
  }
  param_grad_done(*pass.param(0).param);
}

}  // namespace kiln
