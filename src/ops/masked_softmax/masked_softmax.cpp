#include "ops/masked_softmax/masked_softmax.h"

#include "ops/check.h"
#include "ops/cpu_fused.h"
#include "ops/cuda_fused.h"
#include "ops/op_call.h"
#include "ops/softmax/softmax.h"

namespace kiln {
namespace {

const SaveDecl<MaskedSoftmaxProblem> kSaves[] = {
    {"y", SavedFrom::output, [](const MaskedSoftmaxProblem& p) { return Shape{p.rows, p.Tk}; },
     [](const MaskedSoftmaxProblem& p) { return p.dtype; }},
};

std::string packed_keys(const MaskedSoftmaxProblem& p, const DeviceTraits& traits) {
  return needs_packed_rows(SoftmaxProblem{p.rows, p.Tk, p.dtype, p.vectorizable}, traits);
}

const Variant<MaskedSoftmaxOp> kRows[] = {
    {"fused", DeviceType::cpu, needs_fp32_or_narrower<MaskedSoftmaxProblem>, kSaves, nullptr,
     MaskedSoftmaxOp::cost, masked_softmax_cpu_fused_forward, masked_softmax_cpu_fused_backward,
     "masked_softmax/cpu_fused.cpp"},
    {"naive", DeviceType::cpu, nullptr, kSaves, nullptr, MaskedSoftmaxOp::cost,
     masked_softmax_cpu_naive_forward, masked_softmax_cpu_naive_backward, "masked_softmax/cpu_naive.cpp"},
    {"fused", DeviceType::cuda, packed_keys, kSaves, nullptr, MaskedSoftmaxOp::cost,
     KILN_CUDA_FN(masked_softmax_cuda_fused_forward), KILN_CUDA_FN(masked_softmax_cuda_fused_backward),
     Kernels("softmax_rows::forward_kernel", "softmax_rows::backward_kernel")},
    {"naive", DeviceType::cuda, nullptr, kSaves, nullptr, MaskedSoftmaxOp::cost,
     KILN_CUDA_FN(masked_softmax_cuda_naive_forward), KILN_CUDA_FN(masked_softmax_cuda_naive_backward),
     Kernels("forward_kernel", "backward_kernel")},
};

}  // namespace

// Only what a row sees is computed and read; all of the result is written.
Cost MaskedSoftmaxOp::cost(const MaskedSoftmaxProblem& p, Pass pass) {
  double seen = 0;
  for (int64_t i = 0; i < p.Tq; ++i) seen += static_cast<double>(p.visible(i));
  if (p.Tq > 0)
    seen *= static_cast<double>(p.rows) / static_cast<double>(p.Tq);  // whole: rows are Tq of each head
  const double n = static_cast<double>(p.rows) * static_cast<double>(p.Tk),
               e = static_cast<double>(size_of(p.dtype));
  // forward: read x, write y; backward: read y and dy, write dx
  return pass == Pass::forward ? Cost{6 * seen, (seen + n) * e} : Cost{5 * seen, (2 * seen + n) * e};
}

std::span<const Variant<MaskedSoftmaxOp>> MaskedSoftmaxOp::rows() { return kRows; }

Tensor masked_softmax(RankContext& ctx, const Tensor& x, const MaskedSoftmaxOptions& options) {
  const char* op = MaskedSoftmaxOp::kName;
  check_float_tensor(ctx, op, "x", x);
  const Shape& s = x.shape();
  if (s.rank() < 2) fail(op, cat("x has shape ", s.str(), ", [..., queries, keys] is needed"));
  const MaskedSoftmaxProblem p{s.rows(),      s[-2],          s.last(),       x.dtype(),
                               options.scale, options.causal, vectorizable(x)};
  OpCall<MaskedSoftmaxOp> call(ctx, p, options.variant);
  Tensor y = ctx.empty(s, p.dtype);
  call.run({p, x, y}, {{"y", y}});
  call.record({&x}, {}, {&y}, {{"y", y.reshape_rows()}});
  return y;
}

void MaskedSoftmaxOp::run_backward(BackwardPass& pass) {
  BackwardCall<MaskedSoftmaxOp> call(pass);
  const GradSlot dx = pass.grad_in(0);
  MaskedSoftmaxProblem p = call.problem();
  p.vectorizable = all_vectorizable(pass.grad_out(), pass.saved("y"), dx.tensor);
  call.choose(p);
  call.run({p, pass.grad_out(), pass.saved("y"), dx}, {{"dx", dx.tensor}});
}

}  // namespace kiln
