#include "ops/softmax/softmax.h"

#include "ops/check.h"
#include "ops/cpu_fused.h"
#include "ops/cuda_fused.h"
#include "ops/op_call.h"

namespace kiln {
namespace {

Cost cost(const SoftmaxProblem& p, Pass pass) {
  const double n = static_cast<double>(p.rows) * static_cast<double>(p.cols),
               e = static_cast<double>(size_of(p.dtype));
  // forward: read x, write y; backward: read y and dy, write dx
  return pass == Pass::forward ? Cost{5 * n, 2 * n * e} : Cost{4 * n, 3 * n * e};
}

const SaveDecl<SoftmaxProblem> kSaves[] = {
    {"y", SavedFrom::output, [](const SoftmaxProblem& p) { return Shape{p.rows, p.cols}; },
     [](const SoftmaxProblem& p) { return p.dtype; }},
};

const Variant<SoftmaxOp> kRows[] = {
    {"fused", DeviceType::cpu, needs_fp32_or_narrower<SoftmaxProblem>, kSaves, nullptr, cost,
     softmax_cpu_fused_forward, softmax_cpu_fused_backward, "softmax/cpu_fused.cpp"},
    {"naive", DeviceType::cpu, nullptr, kSaves, nullptr, cost, softmax_cpu_naive_forward,
     softmax_cpu_naive_backward, "softmax/cpu_naive.cpp"},
    {"fused", DeviceType::cuda, needs_packed_rows<SoftmaxProblem>, kSaves, nullptr, cost,
     KILN_CUDA_FN(softmax_cuda_fused_forward), KILN_CUDA_FN(softmax_cuda_fused_backward),
     Kernels("softmax_rows::forward_kernel", "softmax_rows::backward_kernel")},
    {"naive", DeviceType::cuda, nullptr, kSaves, nullptr, cost, KILN_CUDA_FN(softmax_cuda_naive_forward),
     KILN_CUDA_FN(softmax_cuda_naive_backward), Kernels("forward_kernel", "backward_kernel")},
};

}  // namespace

std::span<const Variant<SoftmaxOp>> SoftmaxOp::rows() { return kRows; }

Tensor softmax(RankContext& ctx, const Tensor& x, std::string_view variant) {
  check_float_tensor(ctx, SoftmaxOp::kName, "x", x);
  const SoftmaxProblem p{x.shape().rows(), x.shape().last(), x.dtype(), vectorizable(x)};
  OpCall<SoftmaxOp> call(ctx, p, variant);
  Tensor y = ctx.empty(x.shape(), p.dtype);
  call.run({p, x, y}, {{"y", y}});
  call.record({&x}, {}, {&y}, {{"y", y.reshape_rows()}});
  return y;
}

void SoftmaxOp::run_backward(BackwardPass& pass) {
  BackwardCall<SoftmaxOp> call(pass);
  const GradSlot dx = pass.grad_in(0);
  SoftmaxProblem p = call.problem();
  p.vectorizable = all_vectorizable(pass.grad_out(), pass.saved("y"), dx.tensor);
  call.choose(p);
  call.run({p, pass.grad_out(), pass.saved("y"), dx}, {{"dx", dx.tensor}});
}

}  // namespace kiln
