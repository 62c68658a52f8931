#include "ops/sgd/sgd.h"

#include "ops/check.h"
#include "ops/op_call.h"

namespace kiln {
namespace {

// Reads w, g and b, writes w and b.
Cost cost(const SgdProblem& p, Pass) {
  const double n = static_cast<double>(p.count), state = static_cast<double>(size_of(stat_dtype(p.dtype)));
  const double weight = static_cast<double>(size_of(p.dtype) + (p.split ? 2 : 0));
  return {7 * n,
          n * (2 * weight + static_cast<double>(size_of(p.grad_dtype)) + (p.momentum != 0 ? 2 * state : 0))};
}

const Variant<SgdOp> kRows[] = {
    {"naive", DeviceType::cpu, nullptr, {}, nullptr, cost, sgd_cpu_naive, nullptr, "sgd/cpu_naive.cpp"},
    {"naive",
     DeviceType::cuda,
     nullptr,
     {},
     nullptr,
     cost,
     KILN_CUDA_FN(sgd_cuda_naive),
     nullptr,
     "sgd_kernel"},
};

}  // namespace

std::span<const Variant<SgdOp>> SgdOp::rows() { return kRows; }

void sgd(RankContext& ctx, const Tensor& value, const Tensor& low, const Tensor& grad, const Tensor& b,
         const Tensor& scalars, double momentum, double decay, std::string_view variant) {
  const char* op = SgdOp::kName;
  check_float_tensor(ctx, op, "value", value);
  check_float_tensor(ctx, op, "grad", grad);
  if (momentum != 0) check_tensor(ctx, op, "b", b, stat_dtype(value.dtype()));
  for (const Tensor* t : {&grad, momentum != 0 ? &b : &grad}) {
    if (t->numel() != value.numel())
      fail(op, cat("a range of ", t->numel(), " for ", value.numel(), " weights"));
  }
  if (low.defined()) {
    check_tensor(ctx, op, "value", value, DType::bf16);
    check_tensor(ctx, op, "low", low, DType::i16);
  }
  const SgdProblem p{value.numel(), value.dtype(), grad.dtype(), low.defined(), momentum, decay};
  OpCall<SgdOp> call(ctx, p, variant);
  call.run({p, value, low, grad, b, scalars}, {{"value", value}});
}

}  // namespace kiln
