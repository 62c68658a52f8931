#include "ops/layer_norm/layer_norm.h"

#include "ops/check.h"
#include "ops/cpu_fused.h"
#include "ops/cuda_fused.h"
#include "ops/op_call.h"
#include "ops/row_sizes.h"

namespace kiln {
namespace {

Cost cost(const LayerNormProblem& p, Pass pass) {
  const RowSizes z = row_sizes(p);
  // forward: read x, write y; backward: read x and dy, write dx (and the small gradients)
  return pass == Pass::forward ? Cost{8 * z.n, 2 * z.matrix + 2 * z.stats + 2 * z.weight}
                               : Cost{13 * z.n, 3 * z.matrix + 2 * z.stats + 3 * z.weight};
}

Shape per_row(const LayerNormProblem& p) { return {p.rows}; }
DType stat(const LayerNormProblem& p) { return stat_dtype(p.dtype); }

const SaveDecl<LayerNormProblem> kSaves[] = {
    {"x", SavedFrom::input, [](const LayerNormProblem& p) { return Shape{p.rows, p.cols}; },
     [](const LayerNormProblem& p) { return p.dtype; }},
    {"mean", SavedFrom::extra, per_row, stat},
    {"rstd", SavedFrom::extra, per_row, stat},
};

std::size_t fused_workspace(const LayerNormProblem& p, Pass pass) {
  return pass == Pass::backward ? 2 * partials_bytes(p.rows, p.cols) : 0;
}

std::size_t block_workspace(const LayerNormProblem& p, Pass pass) {
  return 2 * block_partials_workspace(p, pass);
}

const Variant<LayerNormOp> kRows[] = {
    {"fused", DeviceType::cpu, needs_fp32_or_narrower<LayerNormProblem>, kSaves, fused_workspace, cost,
     layer_norm_cpu_fused_forward, layer_norm_cpu_fused_backward, "layer_norm/cpu_fused.cpp"},
    {"naive", DeviceType::cpu, nullptr, kSaves, nullptr, cost, layer_norm_cpu_naive_forward,
     layer_norm_cpu_naive_backward, "layer_norm/cpu_naive.cpp"},
    {"fused", DeviceType::cuda, needs_short_packed_rows<LayerNormProblem>, kSaves, block_workspace, cost,
     KILN_CUDA_FN(layer_norm_cuda_fused_forward), KILN_CUDA_FN(layer_norm_cuda_fused_backward),
     Kernels("layer_norm_fused_forward_kernel", "layer_norm_fused_backward_kernel sum_partials_kernel")},
    {"naive", DeviceType::cuda, nullptr, kSaves, nullptr, cost, KILN_CUDA_FN(layer_norm_cuda_naive_forward),
     KILN_CUDA_FN(layer_norm_cuda_naive_backward),
     Kernels("forward_kernel", "grad_x_kernel column_sum_kernel")},
};

}  // namespace

std::span<const Variant<LayerNormOp>> LayerNormOp::rows() { return kRows; }

Tensor layer_norm(RankContext& ctx, const Tensor& x, const ParamRef& weight, const ParamRef& bias, float eps,
                  std::string_view variant) {
  check_float_tensor(ctx, LayerNormOp::kName, "x", x);
  ParamUse w(weight, ctx.tape().counts_uses()), b(bias, ctx.tape().counts_uses());
  check_param_dtype(LayerNormOp::kName, weight, w.tensor(), x.dtype());
  check_param_dtype(LayerNormOp::kName, bias, b.tensor(), x.dtype());
  check_column_param(LayerNormOp::kName, "weight", weight, x);
  check_column_param(LayerNormOp::kName, "bias", bias, x);
  const LayerNormProblem p{x.shape().rows(), x.shape().last(), x.dtype(), eps,
                           all_vectorizable(x, w.tensor(), b.tensor())};
  OpCall<LayerNormOp> call(ctx, p, variant);
  Tensor y = ctx.empty(x.shape(), p.dtype);
  const Tensor mean = call.extra("mean"), rstd = call.extra("rstd");
  call.run({p, x, w.tensor(), b.tensor(), y, mean, rstd}, {{"y", y}});
  call.record({&x}, {weight, bias}, {&y}, {{"x", x.reshape_rows()}, {"mean", mean}, {"rstd", rstd}});
  return y;
}

void LayerNormOp::run_backward(BackwardPass& pass) {
  BackwardCall<LayerNormOp> call(pass);
  {
    ParamUse w(pass.param(0), false);
    const GradSlot dx = pass.grad_in(0);
    const GradSlot dw = param_grad(pass.param(0)), db = param_grad(pass.param(1));
    LayerNormProblem p = call.problem();
    p.vectorizable = all_vectorizable(pass.grad_out(), pass.saved("x"), w.tensor(), dx.tensor);
    call.choose(p);
    const Tensor workspace = call.workspace();
    call.run({p, pass.grad_out(), pass.saved("x"), w.tensor(), pass.saved("mean"), pass.saved("rstd"), dx, dw,
              db, workspace},
             {{"dx", dx.tensor}, {"dweight", dw.tensor}, {"dbias", db.tensor}});
  }
  param_grad_done(*pass.param(1).param);
  param_grad_done(*pass.param(0).param);
}

}  // namespace kiln
