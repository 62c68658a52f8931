#include "ops/weighted_sum/weighted_sum.h"

#include "ops/check.h"
#include "ops/elementwise/broadcast.h"
#include "ops/op_call.h"
#include "ops/row_sizes.h"

namespace kiln {
namespace {

Cost cost(const WeightedSumProblem& p, Pass pass) {
  const RowSizes z = row_sizes(p);
  // forward: read x, write a number a row; backward: read x, write dx (and the small weight gradient)
  return pass == Pass::forward ? Cost{2 * z.n, z.matrix + z.column + z.weight}
                               : Cost{3 * z.n, 2 * z.matrix + z.column + 2 * z.weight};
}

const SaveDecl<WeightedSumProblem> kSaves[] = {
    {"x", SavedFrom::input, [](const WeightedSumProblem& p) { return Shape{p.rows, p.cols}; },
     [](const WeightedSumProblem& p) { return p.dtype; }},
};

const Variant<WeightedSumOp> kRows[] = {
    {"tiled", DeviceType::cpu, nullptr, kSaves, weighted_sum_cpu_tiled_workspace, cost,
     weighted_sum_cpu_tiled_forward, weighted_sum_cpu_tiled_backward, "weighted_sum/cpu_tiled.cpp"},
    {"naive", DeviceType::cpu, nullptr, kSaves, nullptr, cost, weighted_sum_cpu_naive_forward,
     weighted_sum_cpu_naive_backward, "weighted_sum/cpu_naive.cpp"},
    {"naive", DeviceType::cuda, nullptr, kSaves, nullptr, cost, KILN_CUDA_FN(weighted_sum_cuda_naive_forward),
     KILN_CUDA_FN(weighted_sum_cuda_naive_backward),
     Kernels("forward_kernel", "grad_x_kernel column_sum_kernel")},
};

}  // namespace

std::span<const Variant<WeightedSumOp>> WeightedSumOp::rows() { return kRows; }

Tensor weighted_sum(RankContext& ctx, const Tensor& x, const ParamRef& weight, std::string_view variant) {
  check_float_tensor(ctx, WeightedSumOp::kName, "x", x);
  ParamUse w(weight, ctx.tape().counts_uses());
  check_param_dtype(WeightedSumOp::kName, weight, w.tensor(), x.dtype());
  check_column_param(WeightedSumOp::kName, "weight", weight, x);
  const WeightedSumProblem p{x.shape().rows(), x.shape().last(), x.dtype()};
  OpCall<WeightedSumOp> call(ctx, p, variant);
  Tensor y = ctx.empty(row_shape(x.shape()), p.dtype);
  call.run({p, x, w.tensor(), y}, {{"y", y}});
  call.record({&x}, {weight}, {&y}, {{"x", x.reshape_rows()}});
  return y;
}

void WeightedSumOp::run_backward(BackwardPass& pass) {
  BackwardCall<WeightedSumOp> call(pass);
  {
    ParamUse w(pass.param(0), false);
    const GradSlot dx = pass.grad_in(0), dw = param_grad(pass.param(0));
    const Tensor workspace = call.workspace();
    call.run({call.problem(), pass.grad_out(), pass.saved("x"), w.tensor(), dx, dw, workspace},
             {{"dx", dx.tensor}, {"dweight", dw.tensor}});
  }
  param_grad_done(*pass.param(0).param);
}

}  // namespace kiln
