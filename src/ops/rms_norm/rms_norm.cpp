#include "ops/rms_norm/rms_norm.h"

#include "ops/check.h"
#include "ops/cpu_fused.h"
#include "ops/cuda_fused.h"
#include "ops/elementwise/broadcast.h"
#include "ops/elementwise/unary.h"
#include "ops/op_call.h"
#include "ops/row_sizes.h"

namespace kiln {
namespace {

Cost cost(const RmsNormProblem& p, Pass pass) {
  const RowSizes z = row_sizes(p);
  // forward: read x, write y; backward: read x and dy, write dx (and the small weight gradient)
  return pass == Pass::forward ? Cost{4 * z.n, 2 * z.matrix + z.stats + z.weight}
                               : Cost{8 * z.n, 3 * z.matrix + z.stats + 2 * z.weight};
}

Cost composed_cost(const RmsNormProblem& p, Pass pass) {
  const UnaryProblem matrix{p.rows, p.cols, p.dtype, 0}, rows{1, p.rows, stat_dtype(p.dtype), p.eps};
  const BroadcastProblem b{p.rows, p.cols, p.dtype};
  return SquareOp::cost(matrix, pass) + RowMeanOp::cost(b, pass) + RsqrtOp::cost(rows, pass) +
         MulRowsOp::cost(b, pass) + MulColumnsOp::cost(b, pass);
}

// The same function from separate ops; the tape finds its gradient.
Tensor composed(RankContext& ctx, const Tensor& x, const ParamRef& weight, float eps) {
  const Tensor rstd = rsqrt(ctx, row_mean(ctx, square(ctx, x)), eps);  // [...]
  return mul_columns(ctx, mul_rows(ctx, x, rstd), weight);
}

const SaveDecl<RmsNormProblem> kSaves[] = {
    {"x", SavedFrom::input, [](const RmsNormProblem& p) { return Shape{p.rows, p.cols}; },
     [](const RmsNormProblem& p) { return p.dtype; }},
    {"rstd", SavedFrom::extra, [](const RmsNormProblem& p) { return Shape{p.rows}; },
     [](const RmsNormProblem& p) { return stat_dtype(p.dtype); }},
};

const Variant<RmsNormOp> kRows[] = {
    {"fused", DeviceType::cpu, needs_fp32_or_narrower<RmsNormProblem>, kSaves,
     partials_workspace<RmsNormProblem>, cost, rms_norm_cpu_fused_forward, rms_norm_cpu_fused_backward,
     "rms_norm/cpu_fused.cpp"},
    {"naive", DeviceType::cpu, nullptr, kSaves, nullptr, cost, rms_norm_cpu_naive_forward,
     rms_norm_cpu_naive_backward, "rms_norm/cpu_naive.cpp"},
    {"composed", DeviceType::cpu, nullptr, {}, nullptr, composed_cost, nullptr, nullptr, {}, true},
    {"fused", DeviceType::cuda, needs_short_packed_rows<RmsNormProblem>, kSaves,
     block_partials_workspace<RmsNormProblem>, cost, KILN_CUDA_FN(rms_norm_cuda_fused_forward),
     KILN_CUDA_FN(rms_norm_cuda_fused_backward),
     Kernels("rms_norm_rows::forward_kernel", "rms_norm_rows::backward_kernel sum_partials_kernel")},
    {"naive", DeviceType::cuda, nullptr, kSaves, nullptr, cost, KILN_CUDA_FN(rms_norm_cuda_naive_forward),
     KILN_CUDA_FN(rms_norm_cuda_naive_backward),
     Kernels("forward_kernel", "grad_x_kernel column_sum_kernel")},
    {"composed", DeviceType::cuda, nullptr, {}, nullptr, composed_cost, nullptr, nullptr, {}, true},
};

}  // namespace

std::span<const Variant<RmsNormOp>> RmsNormOp::rows() { return kRows; }

Tensor rms_norm(RankContext& ctx, const Tensor& x, const ParamRef& weight, float eps,
                std::string_view variant) {
  check_float_tensor(ctx, RmsNormOp::kName, "x", x);
  check_column_param(RmsNormOp::kName, "weight", weight, x);
  const RmsNormProblem p{x.shape().rows(), x.shape().last(), x.dtype(), eps, all_vectorizable(x, weight)};
  OpCall<RmsNormOp> call(ctx, p, variant);
  if (call.composed()) return composed(ctx, x, weight, eps);
  ParamUse w(weight, ctx.tape().counts_uses());
  check_param_dtype(RmsNormOp::kName, weight, w.tensor(), x.dtype());
  Tensor y = ctx.empty(x.shape(), p.dtype);
  const Tensor rstd = call.extra("rstd");
  call.run({p, x, w.tensor(), y, rstd}, {{"y", y}});
  call.record({&x}, {weight}, {&y}, {{"x", x.reshape_rows()}, {"rstd", rstd}});
  return y;
}

void RmsNormOp::run_backward(BackwardPass& pass) {
  BackwardCall<RmsNormOp> call(pass);
  {
    ParamUse w(pass.param(0), false);
    const GradSlot dx = pass.grad_in(0);
    const GradSlot dw = param_grad(pass.param(0));
    RmsNormProblem p = call.problem();
    p.vectorizable = all_vectorizable(pass.grad_out(), pass.saved("x"), w.tensor(), dx.tensor);
    call.choose(p);
    const Tensor workspace = call.workspace();
    call.run({p, pass.grad_out(), pass.saved("x"), w.tensor(), pass.saved("rstd"), dx, dw, workspace},
             {{"dx", dx.tensor}, {"dweight", dw.tensor}});
  }
  param_grad_done(*pass.param(0).param);
}

}  // namespace kiln
