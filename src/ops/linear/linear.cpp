#include "ops/linear/linear.h"

#include "ops/check.h"
#include "ops/op_call.h"

namespace kiln {
namespace {

Cost cost(const LinearProblem& p, Pass pass) {
  const double flops =
      2.0 * static_cast<double>(p.rows) * static_cast<double>(p.in) * static_cast<double>(p.out);
  const double matrices = static_cast<double>(p.rows * p.in + p.in * p.out + p.rows * p.out) *
                          static_cast<double>(size_of(p.dtype));
  return pass == Pass::forward ? Cost{flops, matrices} : Cost{2 * flops, 2 * matrices};
}

const SaveDecl<LinearProblem> kSaves[] = {
    {"x", SavedFrom::input, [](const LinearProblem& p) { return Shape{p.rows, p.in}; },
     [](const LinearProblem& p) { return p.dtype; }},
};

std::string lt_unsupported(const LinearProblem& p, const DeviceTraits& traits) {
  if (p.dtype == DType::bf16 && traits.compute_capability < 80)
    return "bf16 matmuls need compute capability 8.0";
  return {};
}

std::string tf32_unsupported(const LinearProblem& p, const DeviceTraits& traits) {
  if (p.dtype != DType::f32) return cat("rounds fp32 to TF32; these are ", name_of(p.dtype));
  return traits.compute_capability < 80 ? "needs compute capability 8.0" : "";
}

std::string packed_unsupported(const LinearProblem& p, const DeviceTraits&) {
  return p.dtype == DType::f64 ? "fp64 has no packed kernel" : "";
}

const Variant<LinearOp> kRows[] = {
    {"small_m", DeviceType::cpu, linear_cpu_small_m_unsupported, kSaves, linear_cpu_small_m_workspace, cost,
     linear_cpu_small_m_forward, linear_cpu_packed_backward,
     Kernels("linear/cpu_small_m.cpp", "gemm/cpu_gemm.cpp")},
    {"packed", DeviceType::cpu, packed_unsupported, kSaves, linear_cpu_packed_workspace, cost,
     linear_cpu_packed_forward, linear_cpu_packed_backward, "gemm/cpu_gemm.cpp"},
    {"naive", DeviceType::cpu, nullptr, kSaves, nullptr, cost, linear_cpu_naive_forward,
     linear_cpu_naive_backward, "linear/cpu_naive.cpp"},
    {"lt", DeviceType::cuda, lt_unsupported, kSaves, nullptr, cost, KILN_CUDA_FN(linear_cuda_lt_forward),
     KILN_CUDA_FN(linear_cuda_lt_backward), "cublasLtMatmul"},
    // Below the true one: its inputs lose 13 of 24 bits, which only a person may decide.
    {"lt_tf32", DeviceType::cuda, tf32_unsupported, kSaves, nullptr, cost,
     KILN_CUDA_FN(linear_cuda_lt_tf32_forward), KILN_CUDA_FN(linear_cuda_lt_tf32_backward), "cublasLtMatmul"},
};

}  // namespace

std::span<const Variant<LinearOp>> LinearOp::rows() { return kRows; }

Tensor linear(RankContext& ctx, const Tensor& x, const ParamRef& weight, std::string_view variant) {
  check_float_tensor(ctx, LinearOp::kName, "x", x);
  ParamUse w(ctx, weight, x.dtype(), ctx.tape().counts_uses());
  check_param_dtype(LinearOp::kName, weight, w.tensor(), x.dtype());
  const Shape ws = weight.shape();
  if (ws.rank() != 2 || ws[1] != x.shape().last()) {
    fail(LinearOp::kName, cat("weight ", weight.param->name, " is ", ws.str(), ", last axis of x ",
                              x.shape().str(), " is ", x.shape().last()));
  }
  const LinearProblem p{x.shape().rows(), ws[1], ws[0], x.dtype()};
  OpCall<LinearOp> call(ctx, p, variant);
  Tensor y = ctx.empty(x.shape().with_last(p.out), p.dtype);
  const Tensor scratch = call.workspace();
  call.run({p, x, w.tensor(), y, scratch}, {{"y", y}});
  call.record({&x}, {weight}, {&y}, {{"x", x.reshape_rows()}});
  return y;
}

void LinearOp::run_backward(BackwardPass& pass) {
  BackwardCall<LinearOp> call(pass);
  {
    ParamUse w(pass.ctx(), pass.param(0), call.problem().dtype, false);
    const GradSlot dx = pass.grad_in(0);
    const GradSlot dw = param_grad(pass.param(0));
    const Tensor scratch = call.workspace();
    call.run({call.problem(), pass.grad_out(), pass.saved("x"), w.tensor(), dx, dw, scratch},
             {{"dx", dx.tensor}, {"dweight", dw.tensor}});
  }
  param_grad_done(*pass.param(0).param);
}

}  // namespace kiln
