#include "ops/adamw/adamw.h"

#include "ops/check.h"
#include "ops/op_call.h"

namespace kiln {
namespace {

// Reads w, g, m, v and writes w, m, v. The floor: no fusion can move less.
Cost cost(const AdamWProblem& p, Pass) {
  const double n = static_cast<double>(p.count), state = static_cast<double>(size_of(stat_dtype(p.dtype)));
  const double weight = static_cast<double>(size_of(p.dtype) + (p.split ? 2 : 0));
  return {14 * n, n * (2 * weight + static_cast<double>(size_of(p.grad_dtype)) + 4 * state)};
}

const Variant<AdamWOp> kRows[] = {
    {"naive", DeviceType::cpu, nullptr, {}, nullptr, cost, adamw_cpu_naive, nullptr},
    {"naive", DeviceType::cuda, nullptr, {}, nullptr, cost, KILN_CUDA_FN(adamw_cuda_naive), nullptr},
};

}  // namespace

std::span<const Variant<AdamWOp>> AdamWOp::rows() { return kRows; }

void adamw(RankContext& ctx, const Tensor& value, const Tensor& low, const Tensor& grad, const Tensor& m,
           const Tensor& v, const Tensor& scalars, double beta1, double beta2, double eps, double decay,
           std::string_view variant) {
  const char* op = AdamWOp::kName;
  check_float_tensor(ctx, op, "value", value);
  check_float_tensor(ctx, op, "grad", grad);
  check_tensor(ctx, op, "m", m, stat_dtype(value.dtype()));
  check_tensor(ctx, op, "v", v, stat_dtype(value.dtype()));
  for (const Tensor* t : {&grad, &m, &v}) {
    if (t->numel() != value.numel())
      fail(op, cat("a range of ", t->numel(), " beside ", value.numel(), " weights"));
  }
  if (low.defined()) {
    check_tensor(ctx, op, "value", value, DType::bf16);
    check_tensor(ctx, op, "low", low, DType::i16);
  }
  const AdamWProblem p{value.numel(), value.dtype(), grad.dtype(), low.defined(), beta1, beta2, eps, decay};
  OpCall<AdamWOp> call(ctx, p, variant);
  call.run({p, value, low, grad, m, v, scalars}, {{"value", value}});
}

}  // namespace kiln
