#include "ops/weighted_sum/weighted_sum.h"

#include "ops/check.h"
#include "ops/elementwise/broadcast.h"
#include "ops/op_call.h"

namespace kiln {
namespace {

Cost cost(const WeightedSumProblem& p, Pass pass) {
  const double n = static_cast<double>(p.rows) * static_cast<double>(p.cols),
               e = static_cast<double>(size_of(p.dtype));
  const double rows = static_cast<double>(p.rows) * e, weight = static_cast<double>(p.cols) * e;
  // forward: read x, write a number a row; backward: read x, write dx (and the small weight gradient)
  return pass == Pass::forward ? Cost{2 * n, n * e + rows + weight}
                               : Cost{3 * n, 2 * n * e + rows + 2 * weight};
}

const SaveDecl<WeightedSumProblem> kSaves[] = {
    {"x", SavedFrom::input, [](const WeightedSumProblem& p) { return Shape{p.rows, p.cols}; },
     [](const WeightedSumProblem& p) { return p.dtype; }},
};

const Variant<WeightedSumOp> kRows[] = {
    {"tiled", DeviceType::cpu, nullptr, kSaves, weighted_sum_cpu_tiled_workspace, cost,
     weighted_sum_cpu_tiled_forward, weighted_sum_cpu_tiled_backward},
    {"naive", DeviceType::cpu, nullptr, kSaves, nullptr, cost, weighted_sum_cpu_naive_forward,
     weighted_sum_cpu_naive_backward},
};

}  // namespace

std::span<const Variant<WeightedSumOp>> WeightedSumOp::rows() { return kRows; }

Tensor weighted_sum(RankContext& ctx, const Tensor& x, const ParamRef& weight, std::string_view variant) {
  check_float_tensor(ctx, WeightedSumOp::kName, "x", x);
  ParamUse w(weight, ctx.tape().counts_uses());
  check_param_dtype(WeightedSumOp::kName, weight, w.tensor(), x.dtype());
  if (weight.shape() != Shape{x.shape().last()}) {
    fail(WeightedSumOp::kName, cat("weight ", weight.param->name, " has ", weight.shape().numel(),
                                   " elements, last axis of x ", x.shape().str(), " is ", x.shape().last()));
  }
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
