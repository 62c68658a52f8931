#include "ops/swiglu/swiglu.h"

#include "ops/check.h"
#include "ops/cpu_fused.h"
#include "ops/cuda_fused.h"
#include "ops/elementwise/binary.h"
#include "ops/elementwise/unary.h"
#include "ops/op_call.h"

namespace kiln {
namespace {

Cost cost(const SwigluProblem& p, Pass pass) {
  const double n = static_cast<double>(p.rows) * static_cast<double>(p.cols),
               e = static_cast<double>(size_of(p.dtype));
  // forward: read gate and up, write y; backward: read gate, up and dy, write two gradients
  return pass == Pass::forward ? Cost{5 * n, 3 * n * e} : Cost{11 * n, 5 * n * e};
}

Cost composed_cost(const SwigluProblem& p, Pass pass) {
  return SiluOp::cost({p.rows, p.cols, p.dtype, 0}, pass) + MulOp::cost({p.rows, p.cols, p.dtype}, pass);
}

Shape full(const SwigluProblem& p) { return {p.rows, p.cols}; }
DType same(const SwigluProblem& p) { return p.dtype; }

const SaveDecl<SwigluProblem> kSaves[] = {
    {"gate", SavedFrom::input, full, same},
    {"up", SavedFrom::input, full, same},
};

const Variant<SwigluOp> kRows[] = {
    {"fused", DeviceType::cpu, needs_fp32_or_narrower<SwigluProblem>, kSaves, nullptr, cost,
     swiglu_cpu_fused_forward, swiglu_cpu_fused_backward, "swiglu/cpu_fused.cpp"},
    {"naive", DeviceType::cpu, nullptr, kSaves, nullptr, cost, swiglu_cpu_naive_forward,
     swiglu_cpu_naive_backward, "swiglu/cpu_naive.cpp"},
    {"composed", DeviceType::cpu, nullptr, {}, nullptr, composed_cost, nullptr, nullptr, {}, true},
    {"fused", DeviceType::cuda, needs_packs<SwigluProblem>, kSaves, nullptr, cost,
     KILN_CUDA_FN(swiglu_cuda_fused_forward), KILN_CUDA_FN(swiglu_cuda_fused_backward),
     Kernels("swiglu_fused_forward_kernel", "swiglu_fused_backward_kernel")},
    {"naive", DeviceType::cuda, nullptr, kSaves, nullptr, cost, KILN_CUDA_FN(swiglu_cuda_naive_forward),
     KILN_CUDA_FN(swiglu_cuda_naive_backward), Kernels("forward_kernel", "backward_kernel")},
    {"composed", DeviceType::cuda, nullptr, {}, nullptr, composed_cost, nullptr, nullptr, {}, true},
};

}  // namespace

std::span<const Variant<SwigluOp>> SwigluOp::rows() { return kRows; }

Tensor swiglu(RankContext& ctx, const Tensor& gate, const Tensor& up, std::string_view variant) {
  check_float_tensor(ctx, SwigluOp::kName, "gate", gate);
  check_tensor(ctx, SwigluOp::kName, "up", up, gate.dtype());
  check_shape(SwigluOp::kName, "up", up.shape(), gate.shape());
  const SwigluProblem p{gate.shape().rows(), gate.shape().last(), gate.dtype(), all_vectorizable(gate, up)};
  OpCall<SwigluOp> call(ctx, p, variant);
  if (call.composed()) return mul(ctx, silu(ctx, gate), up);
  Tensor y = ctx.empty(gate.shape(), p.dtype);
  call.run({p, gate, up, y}, {{"y", y}});
  call.record({&gate, &up}, {}, {&y}, {{"gate", gate.reshape_rows()}, {"up", up.reshape_rows()}});
  return y;
}

void SwigluOp::run_backward(BackwardPass& pass) {
  BackwardCall<SwigluOp> call(pass);
  const GradSlot dgate = pass.grad_in(0);
  const GradSlot dup = pass.grad_in(1);
  SwigluProblem p = call.problem();
  p.vectorizable =
      all_vectorizable(pass.grad_out(), pass.saved("gate"), pass.saved("up"), dgate.tensor, dup.tensor);
  call.choose(p);
  call.run({p, pass.grad_out(), pass.saved("gate"), pass.saved("up"), dgate, dup},
           {{"dgate", dgate.tensor}, {"dup", dup.tensor}});
}

}  // namespace kiln
