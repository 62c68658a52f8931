#include "ops/elementwise/binary.h"

#include "ops/check.h"
#include "ops/cpu_fused.h"
#include "ops/op_call.h"

namespace kiln {
namespace {

Shape full(const BinaryProblem& p) { return {p.rows, p.cols}; }
DType same(const BinaryProblem& p) { return p.dtype; }

const SaveDecl<BinaryProblem> kBoth[] = {
    {"a", SavedFrom::input, full, same},
    {"b", SavedFrom::input, full, same},
};

const Variant<MulOp> kMulRows[] = {
    {"fused", DeviceType::cpu, needs_fp32_or_narrower<BinaryProblem>, kBoth, nullptr, MulOp::cost,
     mul_cpu_fused_forward, mul_cpu_fused_backward, "elementwise/cpu_fused.cpp"},
    {"naive", DeviceType::cpu, nullptr, kBoth, nullptr, MulOp::cost, mul_cpu_naive_forward,
     mul_cpu_naive_backward, "elementwise/cpu_naive.cpp"},
    {"naive", DeviceType::cuda, nullptr, kBoth, nullptr, MulOp::cost, KILN_CUDA_FN(mul_cuda_naive_forward),
     KILN_CUDA_FN(mul_cuda_naive_backward), Kernels("binary_forward_kernel", "mul_backward_kernel")},
};

const Variant<SubOp> kSubRows[] = {
    {"fused",
     DeviceType::cpu,
     needs_fp32_or_narrower<BinaryProblem>,
     {},
     nullptr,
     SubOp::cost,
     sub_cpu_fused_forward,
     sub_cpu_fused_backward,
     "elementwise/cpu_fused.cpp"},
    {"naive",
     DeviceType::cpu,
     nullptr,
     {},
     nullptr,
     SubOp::cost,
     sub_cpu_naive_forward,
     sub_cpu_naive_backward,
     "elementwise/cpu_naive.cpp"},
    {"naive",
     DeviceType::cuda,
     nullptr,
     {},
     nullptr,
     SubOp::cost,
     KILN_CUDA_FN(sub_cuda_naive_forward),
     KILN_CUDA_FN(sub_cuda_naive_backward),
     Kernels("binary_forward_kernel", "negate_kernel")},
};

template <class Op>
Tensor binary(RankContext& ctx, const Tensor& a, const Tensor& b, std::string_view variant) {
  check_float_tensor(ctx, Op::kName, "a", a);
  check_tensor(ctx, Op::kName, "b", b, a.dtype());
  check_shape(Op::kName, "b", b.shape(), a.shape());
  const BinaryProblem p{a.shape().rows(), a.shape().last(), a.dtype()};
  OpCall<Op> call(ctx, p, variant);
  Tensor y = ctx.empty(a.shape(), p.dtype);
  call.run({p, a, b, y}, {{"y", y}});
  call.record({&a, &b}, {}, {&y}, {{"a", a.reshape_rows()}, {"b", b.reshape_rows()}});
  return y;
}

double elements(const BinaryProblem& p) { return static_cast<double>(p.rows) * static_cast<double>(p.cols); }

}  // namespace

Cost MulOp::cost(const BinaryProblem& p, Pass pass) {
  const double n = elements(p), e = static_cast<double>(size_of(p.dtype));
  return pass == Pass::forward ? Cost{n, 3 * n * e} : Cost{2 * n, 5 * n * e};
}

Cost SubOp::cost(const BinaryProblem& p, Pass pass) {
  const double n = elements(p), e = static_cast<double>(size_of(p.dtype));
  return pass == Pass::forward ? Cost{n, 3 * n * e} : Cost{n, 2 * n * e};  // backward: db = -dy
}

std::span<const Variant<MulOp>> MulOp::rows() { return kMulRows; }
std::span<const Variant<SubOp>> SubOp::rows() { return kSubRows; }

Tensor mul(RankContext& ctx, const Tensor& a, const Tensor& b, std::string_view variant) {
  return binary<MulOp>(ctx, a, b, variant);
}

Tensor sub(RankContext& ctx, const Tensor& a, const Tensor& b, std::string_view variant) {
  return binary<SubOp>(ctx, a, b, variant);
}

void MulOp::run_backward(BackwardPass& pass) {
  BackwardCall<MulOp> call(pass);
  const GradSlot da = pass.grad_in(0), db = pass.grad_in(1);
  call.run({call.problem(), pass.grad_out(), pass.saved("a"), pass.saved("b"), da, db},
           {{"da", da.tensor}, {"db", db.tensor}});
}

void SubOp::run_backward(BackwardPass& pass) {
  BackwardCall<SubOp> call(pass);
  const GradSlot db = pass.grad_in(1);  // first: a's share may be dy itself, which db is made from
  const Tensor none;
  if (db.wanted()) call.run({call.problem(), pass.grad_out(), none, none, {}, db}, {{"db", db.tensor}});
  pass.adopt_grad(0, pass.grad_out());
}

}  // namespace kiln
