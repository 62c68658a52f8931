#include "ops/add/add.h"

#include "autograd/accumulate.h"
#include "ops/check.h"
#include "ops/cpu_fused.h"
#include "ops/cuda_fused.h"
#include "ops/op_call.h"

namespace kiln {
namespace {

Cost cost(const AddProblem& p, Pass pass) {
  if (pass == Pass::backward) return {};  // both inputs share the output's gradient
  const double n = static_cast<double>(p.rows) * static_cast<double>(p.cols);
  return {n, 3 * n * static_cast<double>(size_of(p.dtype))};
}

const Variant<AddOp> kRows[] = {
    {"fused",
     DeviceType::cpu,
     needs_fp32_or_narrower<AddProblem>,
     {},
     nullptr,
     cost,
     add_cpu_fused_forward,
     nullptr,
     "add/cpu_fused.cpp"},
    {"naive",
     DeviceType::cpu,
     nullptr,
     {},
     nullptr,
     cost,
     add_cpu_naive_forward,
     nullptr,
     "add/cpu_naive.cpp"},
    {"fused",
     DeviceType::cuda,
     needs_packs<AddProblem>,
     {},
     nullptr,
     cost,
     KILN_CUDA_FN(add_cuda_fused_forward),
     nullptr,
     "add_fused_kernel"},
    {"naive",
     DeviceType::cuda,
     nullptr,
     {},
     nullptr,
     cost,
     KILN_CUDA_FN(add_cuda_naive_forward),
     nullptr,
     "add_kernel"},
};

}  // namespace

std::span<const Variant<AddOp>> AddOp::rows() { return kRows; }

Tensor add(RankContext& ctx, const Tensor& a, const Tensor& b, std::string_view variant) {
  check_float_tensor(ctx, AddOp::kName, "a", a);
  check_tensor(ctx, AddOp::kName, "b", b, a.dtype());
  check_shape(AddOp::kName, "b", b.shape(), a.shape());
  const AddProblem p{a.shape().rows(), a.shape().last(), a.dtype(), all_vectorizable(a, b)};
  OpCall<AddOp> call(ctx, p, variant);
  Tensor y = ctx.empty(a.shape(), p.dtype);
  call.run({p, a, b, y}, {{"y", y}});
  call.record({&a, &b}, {}, {&y}, {});
  return y;
}

void AddOp::run_backward(BackwardPass& pass) {
  pass.adopt_grad(0, pass.grad_out());
  pass.adopt_grad(1, pass.grad_out());
}

void accumulate_grad(RankContext& ctx, const GradSlot& slot, const Tensor& src) {
  const AddProblem p{src.shape().rows(), src.shape().last(), src.dtype(), all_vectorizable(slot.tensor, src)};
  OpCall<AddOp> call(ctx, p);
  call.run({p, slot.accumulate ? slot.tensor : Tensor(), src, slot.tensor}, {{"grad", slot.tensor}});
}

}  // namespace kiln
