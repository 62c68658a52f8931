#include "ops/linear_cross_entropy/linear_cross_entropy.h"

#include "autograd/accumulate.h"
#include "ops/check.h"
#include "ops/cpu_fused.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/linear/linear.h"
#include "ops/linear_cross_entropy/cuda_chunks.h"
#include "ops/op_call.h"

namespace kiln {
namespace {

using Problem = LinearCrossEntropyProblem;

// All matmuls run in forward; backward only scales their results by dloss.
Cost fused_cost(const Problem& p, Pass pass) {
  const double e = static_cast<double>(size_of(p.dtype));
  const double x = static_cast<double>(p.rows) * static_cast<double>(p.in),
               w = static_cast<double>(p.vocab) * static_cast<double>(p.in);
  const double dx = p.dx ? x : 0, dw = p.dweight ? w : 0;
  if (pass == Pass::backward) return {dx + dw, 2 * dx * e + 2 * dw * 4};
  const double product = 2 * x * static_cast<double>(p.vocab);
  return {product * (1 + (p.dx ? 1 : 0) + (p.dweight ? 1 : 0)), (x + w + dx) * e + dw * 4};
}

Cost composed_cost(const Problem& p, Pass pass) {
  return LinearOp::rows().front().cost(LinearProblem{p.rows, p.in, p.vocab, p.dtype}, pass) +
         CrossEntropyOp::rows().front().cost(CrossEntropyProblem{p.rows, p.vocab, p.dtype}, pass);
}

const SaveDecl<Problem> kFusedSaves[] = {
    {"dx", SavedFrom::extra, [](const Problem& p) { return Shape{p.dx ? p.rows : 0, p.in}; },
     [](const Problem& p) { return p.dtype; }},
    {"dweight", SavedFrom::extra, [](const Problem& p) { return Shape{p.dweight ? p.vocab : 0, p.in}; },
     [](const Problem& p) { return stat_dtype(p.dtype); }},
    {"count", SavedFrom::extra, [](const Problem&) { return Shape{1}; },
     [](const Problem& p) { return stat_dtype(p.dtype); }},
};

std::string cuda_fused_unsupported(const Problem& p, const DeviceTraits& traits) {
  if (p.dtype == DType::f64) return "computes in fp32, fp64 runs on composed";
  if (p.dtype == DType::bf16 && traits.compute_capability < 80)
    return "bf16 matmuls need compute capability 8.0";
  return {};
}

std::size_t cuda_fused_workspace(const Problem& p, Pass pass) {
  return pass == Pass::forward ? CudaLossChunks(p).total : 0;
}

const Variant<LinearCrossEntropyOp> kRows[] = {
    {"fused", DeviceType::cpu, needs_fp32_or_narrower<Problem>, kFusedSaves,
     linear_cross_entropy_cpu_fused_workspace, fused_cost, linear_cross_entropy_cpu_fused_forward,
     linear_cross_entropy_cpu_fused_backward, "linear_cross_entropy/cpu_fused.cpp gemm/cpu_gemm.cpp"},
    {"composed", DeviceType::cpu, nullptr, {}, nullptr, composed_cost, nullptr, nullptr, {}, true},
    {"fused", DeviceType::cuda, cuda_fused_unsupported, kFusedSaves, cuda_fused_workspace, fused_cost,
     KILN_CUDA_FN(linear_cross_entropy_cuda_fused_forward),
     KILN_CUDA_FN(linear_cross_entropy_cuda_fused_backward),
     Kernels("cublasLtMatmul held_row_kernel long_row_kernel loss_rows::mean_loss_kernel", "scale_kernel")},
    {"composed", DeviceType::cuda, nullptr, {}, nullptr, composed_cost, nullptr, nullptr, {}, true},
};

void check_arguments(RankContext& ctx, const Tensor& x, const ParamRef& weight, const Tensor& targets) {
  const char* op = LinearCrossEntropyOp::kName;
  check_float_tensor(ctx, op, "x", x);
  check_tensor(ctx, op, "targets", targets, DType::i32);
  const Shape ws = weight.shape();
  if (ws.rank() != 2 || ws[1] != x.shape().last()) {
    fail(op, cat("weight ", weight.param->name, " is ", ws.str(), ", last axis of x ", x.shape().str(),
                 " is ", x.shape().last()));
  }
  if (targets.numel() != x.shape().rows()) {
    fail(op, cat("targets ", targets.shape().str(), " do not match x ", x.shape().str()),
         "one target for every row of x");
  }
}

}  // namespace

std::span<const Variant<LinearCrossEntropyOp>> LinearCrossEntropyOp::rows() { return kRows; }

Tensor linear_cross_entropy(RankContext& ctx, const Tensor& x, const ParamRef& weight, const Tensor& targets,
                            std::string_view variant, int64_t chunk_rows) {
  check_arguments(ctx, x, weight, targets);
  const bool recording = ctx.tape().mode() == GradMode::record;
  const Problem p{x.shape().rows(),
                  x.shape().last(),
                  weight.rows,
                  x.dtype(),
                  recording && ctx.tape().needs_grad(x),
                  recording && weight.param->trainable,
                  chunk_rows};
  OpCall<LinearCrossEntropyOp> call(ctx, p, variant);
  if (call.composed()) return cross_entropy(ctx, linear(ctx, x, weight), targets);

  ParamUse w(ctx, weight, x.dtype(), ctx.tape().counts_uses());
  check_param_dtype(LinearCrossEntropyOp::kName, weight, w.tensor(), x.dtype());
  Tensor loss = ctx.empty({1}, stat_dtype(p.dtype));
  Tensor dx, dweight, count;
  if (recording) {
    dx = call.extra("dx");
    dweight = call.extra("dweight");
    count = call.extra("count");
  }
  {
    const Tensor workspace = call.workspace();
    call.run({p, x, w.tensor(), targets.reshape({p.rows}), loss, dx, dweight, count, workspace},
             {{"loss", loss}, {"dx", dx}, {"dweight", dweight}});
  }
  call.record({&x}, {weight}, {&loss}, {{"dx", dx}, {"dweight", dweight}, {"count", count}});
  return loss;
}

void LinearCrossEntropyOp::run_backward(BackwardPass& pass) {
  BackwardCall<LinearCrossEntropyOp> call(pass);
  {
    const GradSlot wanted = pass.grad_in(0);
    // The kernels write flat. Where x is a part of a packed tensor its gradient is a range of columns.
    const bool apart = wanted.wanted() && !wanted.tensor.contiguous();
    const GradSlot dx =
        apart ? GradSlot{pass.ctx().empty(wanted.tensor.shape(), wanted.tensor.dtype()), false} : wanted;
    const GradSlot dw = param_grad(pass.param(0));
    call.run({call.problem(), pass.grad_out(), pass.saved("dx"), pass.saved("dweight"), pass.saved("count"),
              dx, dw},
             {{"dx", dx.tensor}, {"dweight", dw.tensor}});
    if (apart) accumulate_grad(pass.ctx(), wanted, dx.tensor);
  }
  param_grad_done(*pass.param(0).param);
}

}  // namespace kiln
