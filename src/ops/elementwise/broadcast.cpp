#include "ops/elementwise/broadcast.h"

#include "ops/check.h"
#include "ops/cpu_fused.h"
#include "ops/op_call.h"
#include "ops/row_sizes.h"

namespace kiln {
namespace {

Shape full(const BroadcastProblem& p) { return {p.rows, p.cols}; }
Shape per_row(const BroadcastProblem& p) { return {p.rows}; }
DType same(const BroadcastProblem& p) { return p.dtype; }
DType stat(const BroadcastProblem& p) { return stat_dtype(p.dtype); }

const SaveDecl<BroadcastProblem> kXAndS[] = {
    {"x", SavedFrom::input, full, same},
    {"s", SavedFrom::input, per_row, stat},
};
const SaveDecl<BroadcastProblem> kX[] = {{"x", SavedFrom::input, full, same}};

constexpr auto kNarrow = needs_fp32_or_narrower<BroadcastProblem>;

const Variant<MulRowsOp> kMulRowsRows[] = {
    {"fused", DeviceType::cpu, kNarrow, kXAndS, nullptr, MulRowsOp::cost, mul_rows_cpu_fused_forward,
     mul_rows_cpu_fused_backward, "elementwise/cpu_fused.cpp"},
    {"naive", DeviceType::cpu, nullptr, kXAndS, nullptr, MulRowsOp::cost, mul_rows_cpu_naive_forward,
     mul_rows_cpu_naive_backward, "elementwise/cpu_naive.cpp"},
    {"naive", DeviceType::cuda, nullptr, kXAndS, nullptr, MulRowsOp::cost,
     KILN_CUDA_FN(mul_rows_cuda_naive_forward), KILN_CUDA_FN(mul_rows_cuda_naive_backward),
     Kernels("mul_rows_kernel", "mul_rows_grad_kernel")},
};

const Variant<MulColumnsOp> kMulColumnsRows[] = {
    {"fused", DeviceType::cpu, kNarrow, kX, partials_workspace<BroadcastProblem>, MulColumnsOp::cost,
     mul_columns_cpu_fused_forward, mul_columns_cpu_fused_backward, "elementwise/cpu_fused.cpp"},
    {"naive", DeviceType::cpu, nullptr, kX, nullptr, MulColumnsOp::cost, mul_columns_cpu_naive_forward,
     mul_columns_cpu_naive_backward, "elementwise/cpu_naive.cpp"},
    {"naive", DeviceType::cuda, nullptr, kX, nullptr, MulColumnsOp::cost,
     KILN_CUDA_FN(mul_columns_cuda_naive_forward), KILN_CUDA_FN(mul_columns_cuda_naive_backward),
     Kernels("mul_columns_kernel", "mul_columns_kernel column_sum_kernel")},
};

const Variant<RowMeanOp> kRowMeanRows[] = {
    {"fused",
     DeviceType::cpu,
     kNarrow,
     {},
     nullptr,
     RowMeanOp::cost,
     row_mean_cpu_fused_forward,
     row_mean_cpu_fused_backward,
     "elementwise/cpu_fused.cpp"},
    {"naive",
     DeviceType::cpu,
     nullptr,
     {},
     nullptr,
     RowMeanOp::cost,
     row_mean_cpu_naive_forward,
     row_mean_cpu_naive_backward,
     "elementwise/cpu_naive.cpp"},
    {"naive",
     DeviceType::cuda,
     nullptr,
     {},
     nullptr,
     RowMeanOp::cost,
     KILN_CUDA_FN(row_mean_cuda_naive_forward),
     KILN_CUDA_FN(row_mean_cuda_naive_backward),
     Kernels("row_mean_kernel", "row_mean_grad_kernel")},
};

BroadcastProblem problem_of(const Tensor& x) { return {x.shape().rows(), x.shape().last(), x.dtype()}; }

}  // namespace

Shape row_shape(const Shape& x) {
  Shape s;
  for (int i = 0; i + 1 < x.rank(); ++i) s.push_back(x[i]);
  return s.rank() > 0 ? s : Shape{x.rows()};
}

Cost MulRowsOp::cost(const BroadcastProblem& p, Pass pass) {
  const RowSizes z = row_sizes(p);
  // backward: read dy and x, write dx; the row's sum of dy x
  return pass == Pass::forward ? Cost{z.n, 2 * z.matrix + z.stats}
                               : Cost{3 * z.n, 3 * z.matrix + 2 * z.stats};
}

Cost MulColumnsOp::cost(const BroadcastProblem& p, Pass pass) {
  const RowSizes z = row_sizes(p);
  return pass == Pass::forward ? Cost{z.n, 2 * z.matrix + z.weight}
                               : Cost{3 * z.n, 3 * z.matrix + 2 * z.weight};
}

Cost RowMeanOp::cost(const BroadcastProblem& p, Pass) {
  const RowSizes z = row_sizes(p);  // forward reads x, backward writes dx
  return {z.n, z.matrix + z.stats};
}

std::span<const Variant<MulRowsOp>> MulRowsOp::rows() { return kMulRowsRows; }
std::span<const Variant<MulColumnsOp>> MulColumnsOp::rows() { return kMulColumnsRows; }
std::span<const Variant<RowMeanOp>> RowMeanOp::rows() { return kRowMeanRows; }

Tensor mul_rows(RankContext& ctx, const Tensor& x, const Tensor& s, std::string_view variant) {
  check_float_tensor(ctx, MulRowsOp::kName, "x", x);
  check_tensor(ctx, MulRowsOp::kName, "s", s, stat_dtype(x.dtype()));
  check_shape(MulRowsOp::kName, "s", s.shape(), row_shape(x.shape()));
  const BroadcastProblem p = problem_of(x);
  OpCall<MulRowsOp> call(ctx, p, variant);
  Tensor y = ctx.empty(x.shape(), p.dtype);
  call.run({p, x, s, y}, {{"y", y}});
  call.record({&x, &s}, {}, {&y}, {{"x", x.reshape_rows()}, {"s", s.reshape({p.rows})}});
  return y;
}

void MulRowsOp::run_backward(BackwardPass& pass) {
  BackwardCall<MulRowsOp> call(pass);
  const GradSlot dx = pass.grad_in(0), ds = pass.grad_in(1);
  call.run({call.problem(), pass.grad_out(), pass.saved("x"), pass.saved("s"), dx, ds},
           {{"dx", dx.tensor}, {"ds", ds.tensor}});
}

Tensor mul_columns(RankContext& ctx, const Tensor& x, const ParamRef& weight, std::string_view variant) {
  check_float_tensor(ctx, MulColumnsOp::kName, "x", x);
  ParamUse w(weight, ctx.tape().counts_uses());
  check_param_dtype(MulColumnsOp::kName, weight, w.tensor(), x.dtype());
  check_column_param(MulColumnsOp::kName, "weight", weight, x);
  const BroadcastProblem p = problem_of(x);
  OpCall<MulColumnsOp> call(ctx, p, variant);
  Tensor y = ctx.empty(x.shape(), p.dtype);
  call.run({p, x, w.tensor(), y}, {{"y", y}});
  call.record({&x}, {weight}, {&y}, {{"x", x.reshape_rows()}});
  return y;
}

void MulColumnsOp::run_backward(BackwardPass& pass) {
  BackwardCall<MulColumnsOp> call(pass);
  {
    ParamUse w(pass.param(0), false);
    const GradSlot dx = pass.grad_in(0), dw = param_grad(pass.param(0));
    const Tensor workspace = call.workspace();
    call.run({call.problem(), pass.grad_out(), pass.saved("x"), w.tensor(), dx, dw, workspace},
             {{"dx", dx.tensor}, {"dweight", dw.tensor}});
  }
  param_grad_done(*pass.param(0).param);
}

Tensor row_mean(RankContext& ctx, const Tensor& x, std::string_view variant) {
  check_float_tensor(ctx, RowMeanOp::kName, "x", x);
  const BroadcastProblem p = problem_of(x);
  OpCall<RowMeanOp> call(ctx, p, variant);
  Tensor mean = ctx.empty(row_shape(x.shape()), stat_dtype(p.dtype));
  call.run({p, x, mean}, {{"mean", mean}});
  call.record({&x}, {}, {&mean}, {});
  return mean;
}

void RowMeanOp::run_backward(BackwardPass& pass) {
  BackwardCall<RowMeanOp> call(pass);
  const GradSlot dx = pass.grad_in(0);
  call.run({call.problem(), pass.grad_out(), dx}, {{"dx", dx.tensor}});
}

}  // namespace kiln
