#include "ops/add_rms_norm/add_rms_norm.h"

#include "autograd/accumulate.h"
#include "ops/add/add.h"
#include "ops/check.h"
#include "ops/cpu_fused.h"
#include "ops/cuda_fused.h"
#include "ops/op_call.h"
#include "ops/row_sizes.h"

namespace kiln {
namespace {

Cost cost(const RmsNormProblem& p, Pass pass) {
  const RowSizes z = row_sizes(p);
  // forward: read two, write two; backward: read the sum and both gradients, write one. FLOPs are those of
  // add and rms_norm apart: adding to a gradient that is there already is counted by no op.
  return pass == Pass::forward ? Cost{5 * z.n, 4 * z.matrix + z.stats + z.weight}
                               : Cost{8 * z.n, 4 * z.matrix + z.stats + 2 * z.weight};
}

// add's backward moves nothing; rms_norm's then adds to the sum's gradient, which it reads as well.
Cost composed_cost(const RmsNormProblem& p, Pass pass) {
  const Cost one_pass = cost(p, pass);
  return pass == Pass::forward ? one_pass + Cost{0, row_sizes(p).matrix} : one_pass;  // the sum is read again
}

const SaveDecl<RmsNormProblem> kSaves[] = {
    {"sum", SavedFrom::output, [](const RmsNormProblem& p) { return Shape{p.rows, p.cols}; },
     [](const RmsNormProblem& p) { return p.dtype; }},
    {"rstd", SavedFrom::extra, [](const RmsNormProblem& p) { return Shape{p.rows}; },
     [](const RmsNormProblem& p) { return stat_dtype(p.dtype); }},
};

const Variant<AddRmsNormOp> kRows[] = {
    {"fused", DeviceType::cpu, needs_fp32_or_narrower<RmsNormProblem>, kSaves,
     partials_workspace<RmsNormProblem>, cost, add_rms_norm_cpu_fused_forward, rms_norm_cpu_fused_backward,
     Kernels("add_rms_norm/cpu_fused.cpp", "rms_norm/cpu_fused.cpp")},
    {"naive", DeviceType::cpu, nullptr, kSaves, nullptr, cost, add_rms_norm_cpu_naive_forward,
     rms_norm_cpu_naive_backward,
     Kernels("add_rms_norm/cpu_naive.cpp rms_norm/cpu_naive.cpp", "rms_norm/cpu_naive.cpp")},
    {"composed", DeviceType::cpu, nullptr, {}, nullptr, composed_cost, nullptr, nullptr, {}, true},
    {"fused", DeviceType::cuda, needs_short_packed_rows<RmsNormProblem>, kSaves,
     block_partials_workspace<RmsNormProblem>, cost, KILN_CUDA_FN(add_rms_norm_cuda_fused_forward),
     KILN_CUDA_FN(rms_norm_cuda_fused_backward),
     Kernels("rms_norm_rows::forward_kernel", "rms_norm_rows::backward_kernel sum_partials_kernel")},
    {"naive", DeviceType::cuda, nullptr, kSaves, nullptr, cost, KILN_CUDA_FN(add_rms_norm_cuda_naive_forward),
     KILN_CUDA_FN(rms_norm_cuda_naive_backward),
     Kernels("add_kernel forward_kernel", "grad_x_kernel column_sum_kernel")},
    {"composed", DeviceType::cuda, nullptr, {}, nullptr, composed_cost, nullptr, nullptr, {}, true},
};

}  // namespace

std::span<const Variant<AddRmsNormOp>> AddRmsNormOp::rows() { return kRows; }

AddRmsNormResult add_rms_norm(RankContext& ctx, const Tensor& x, const Tensor& residual,
                              const ParamRef& weight, float eps, std::string_view variant) {
  const char* op = AddRmsNormOp::kName;
  check_float_tensor(ctx, op, "x", x);
  check_tensor(ctx, op, "residual", residual, x.dtype());
  check_shape(op, "residual", residual.shape(), x.shape());
  check_column_param(op, "weight", weight, x);
  const RmsNormProblem p{x.shape().rows(), x.shape().last(), x.dtype(), eps,
                         all_vectorizable(x, residual, weight)};
  OpCall<AddRmsNormOp> call(ctx, p, variant);
  if (call.composed()) {
    const Tensor sum = add(ctx, x, residual);
    return {sum, rms_norm(ctx, sum, weight, eps)};
  }
  ParamUse w(weight, ctx.tape().counts_uses());
  check_param_dtype(op, weight, w.tensor(), x.dtype());
  AddRmsNormResult out{ctx.empty(x.shape(), p.dtype), ctx.empty(x.shape(), p.dtype)};
  const Tensor rstd = call.extra("rstd");
  call.run({p, x, residual, w.tensor(), out.sum, out.normed, rstd}, {{"sum", out.sum}, {"y", out.normed}});
  call.record({&x, &residual}, {weight}, {&out.sum, &out.normed},
              {{"sum", out.sum.reshape_rows()}, {"rstd", rstd}});
  return out;
}

void AddRmsNormOp::run_backward(BackwardPass& pass) {
  BackwardCall<AddRmsNormOp> call(pass);
  {
    ParamUse w(pass.param(0), false);
    const GradSlot dw = param_grad(pass.param(0));
    // The norm's gradient is added to the sum's, in place where that has no other reader.
    const bool mine = pass.grad_out(0).buffer().unique() && pass.grad_out(0).contiguous();
    Tensor dx = mine ? pass.grad_out(0) : pass.ctx().empty(pass.grad_out(0).shape(), call.problem().dtype);
    if (!mine) accumulate_grad(pass.ctx(), {dx, false}, pass.grad_out(0));
    RmsNormProblem p = call.problem();
    p.vectorizable = all_vectorizable(pass.grad_out(1), pass.saved("sum"), w.tensor(), dx);
    call.choose(p);
    const Tensor workspace = call.workspace();
    call.run(
        {p, pass.grad_out(1), pass.saved("sum"), w.tensor(), pass.saved("rstd"), {dx, true}, dw, workspace},
        {{"dx", dx}, {"dweight", dw.tensor}});
    pass.adopt_grad(0, dx);
    pass.adopt_grad(1, std::move(dx));
  }
  param_grad_done(*pass.param(0).param);
}

}  // namespace kiln
