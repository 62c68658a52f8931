#include "ops/elementwise/unary.h"

#include "ops/check.h"
#include "ops/cpu_fused.h"
#include "ops/op_call.h"

namespace kiln {
namespace {

Shape full(const UnaryProblem& p) { return {p.rows, p.cols}; }
DType same(const UnaryProblem& p) { return p.dtype; }

const SaveDecl<UnaryProblem> kInput[] = {{"x", SavedFrom::input, full, same}};
const SaveDecl<UnaryProblem> kOutput[] = {{"y", SavedFrom::output, full, same}};

template <class Kind>
std::span<const SaveDecl<UnaryProblem>> saves_of() {
  if constexpr (Kind::kSaves == UnarySaves::input) return kInput;
  if constexpr (Kind::kSaves == UnarySaves::output) return kOutput;
  return {};
}

// The slope of relu is a comparison, which the vectors have not: its fused row shares naive's plain code.
template <class Kind>
constexpr auto kFusedBackward = unary_cpu_fused_backward<Kind>;
template <>
constexpr auto kFusedBackward<ReluKind> = unary_cpu_naive_backward<ReluKind>;

template <class Kind>
constexpr const char* kFusedBackwardFile = "elementwise/cpu_fused.cpp";
template <>
constexpr const char* kFusedBackwardFile<ReluKind> = "elementwise/cpu_naive.cpp";

template <class Kind>
Tensor unary(RankContext& ctx, const Tensor& x, double parameter, std::string_view variant) {
  check_float_tensor(ctx, Kind::kName, "x", x);
  const UnaryProblem p{x.shape().rows(), x.shape().last(), x.dtype(), parameter};
  OpCall<UnaryOp<Kind>> call(ctx, p, variant);
  Tensor y = ctx.empty(x.shape(), p.dtype);
  call.run({p, x, y}, {{"y", y}});
  call.record({&x}, {}, {&y}, {{"x", x.reshape_rows()}, {"y", y.reshape_rows()}});
  return y;
}

}  // namespace

template <class Kind>
std::span<const Variant<UnaryOp<Kind>>> UnaryOp<Kind>::rows() {
  static const Variant<UnaryOp> kTable[] = {
      {"fused", DeviceType::cpu, needs_fp32_or_narrower<UnaryProblem>, saves_of<Kind>(), nullptr, cost,
       unary_cpu_fused_forward<Kind>, kFusedBackward<Kind>,
       Kernels("elementwise/cpu_fused.cpp", kFusedBackwardFile<Kind>)},
      {"naive", DeviceType::cpu, nullptr, saves_of<Kind>(), nullptr, cost, unary_cpu_naive_forward<Kind>,
       unary_cpu_naive_backward<Kind>, "elementwise/cpu_naive.cpp"},
      {"naive", DeviceType::cuda, nullptr, saves_of<Kind>(), nullptr, cost,
       KILN_CUDA_FN(unary_cuda_naive_forward<Kind>), KILN_CUDA_FN(unary_cuda_naive_backward<Kind>),
       Kernels("unary_forward_kernel", "unary_backward_kernel")},
  };
  return kTable;
}

template <class Kind>
void UnaryOp<Kind>::run_backward(BackwardPass& pass) {
  BackwardCall<UnaryOp> call(pass);
  Tensor saved;
  if (Kind::kSaves != UnarySaves::nothing) saved = pass.saved(Kind::kSaves == UnarySaves::input ? "x" : "y");
  const GradSlot dx = pass.grad_in(0);
  call.run({call.problem(), pass.grad_out(), saved, dx}, {{"dx", dx.tensor}});
}

template struct UnaryOp<SiluKind>;
template struct UnaryOp<SquareKind>;
template struct UnaryOp<RsqrtKind>;
template struct UnaryOp<ReluKind>;
template struct UnaryOp<ScaleKind>;

Tensor silu(RankContext& ctx, const Tensor& x, std::string_view variant) {
  return unary<SiluKind>(ctx, x, 0, variant);
}

Tensor square(RankContext& ctx, const Tensor& x, std::string_view variant) {
  return unary<SquareKind>(ctx, x, 0, variant);
}

Tensor rsqrt(RankContext& ctx, const Tensor& x, double eps, std::string_view variant) {
  return unary<RsqrtKind>(ctx, x, eps, variant);
}

Tensor relu(RankContext& ctx, const Tensor& x, std::string_view variant) {
  return unary<ReluKind>(ctx, x, 0, variant);
}

Tensor scale(RankContext& ctx, const Tensor& x, double factor, std::string_view variant) {
  return unary<ScaleKind>(ctx, x, factor, variant);
}

}  // namespace kiln
