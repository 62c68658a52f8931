#include "ops/cast/cast.h"

#include "autograd/cast_values.h"
#include "ops/check.h"
#include "ops/op_call.h"
#include "ops/vectorizable.h"

namespace kiln {
namespace {

// One read and one write, in either direction.
Cost cost(const CastProblem& p, Pass) {
  const double n = static_cast<double>(p.rows) * static_cast<double>(p.cols);
  return {0, n * static_cast<double>(size_of(p.from) + size_of(p.to))};
}

std::string no_fp64(const CastProblem& p, const DeviceTraits&) {
  return p.from == DType::f64 || p.to == DType::f64 ? "computes in fp32, fp64 runs on naive" : "";
}

std::string whole_pieces(const CastProblem& p, const DeviceTraits& traits) {
  if (std::string why = no_fp64(p, traits); !why.empty()) return why;
  if (p.cols % cast_piece(p) != 0)
    return cat("takes rows of whole 16 bytes on the wider side, ", cast_piece(p), " elements; these have ",
               p.cols);
  return p.whole_pieces ? std::string()
                        : cat("takes tensors whose rows begin at multiples of ", cast_piece(p),
                              " elements; one of these has rows that do not");
}

const Variant<CastOp> kRows[] = {
    {"fused",
     DeviceType::cpu,
     no_fp64,
     {},
     nullptr,
     cost,
     cast_cpu_fused,
     cast_cpu_fused,
     "cast/cpu_fused.cpp"},
    {"naive",
     DeviceType::cpu,
     nullptr,
     {},
     nullptr,
     cost,
     cast_cpu_naive,
     cast_cpu_naive,
     "cast/cpu_naive.cpp"},
    {"fused",
     DeviceType::cuda,
     whole_pieces,
     {},
     nullptr,
     cost,
     KILN_CUDA_FN(cast_cuda_fused),
     KILN_CUDA_FN(cast_cuda_fused),
     "cast_fused_kernel"},
    {"naive",
     DeviceType::cuda,
     nullptr,
     {},
     nullptr,
     cost,
     KILN_CUDA_FN(cast_cuda_naive),
     KILN_CUDA_FN(cast_cuda_naive),
     "cast_kernel"},
};

// The copy without its place on the tape.
Tensor run(RankContext& ctx, const OpCall<CastOp>& call, const CastProblem& p, const Tensor& x, Tag tag) {
  Tensor y = ctx.empty(x.shape(), p.to, tag);
  call.run({p, x, {y, false}}, {{"y", y}});
  return y;
}

// `y` undefined: a separate tensor, which begins at a piece.
CastProblem with_alignment(CastProblem p, const Tensor& x, const Tensor& y) {
  const auto begin_at_pieces = [&](const Tensor& t) {
    return !t.defined() || rows_aligned(t, cast_piece(p) * static_cast<int64_t>(size_of(t.dtype())));
  };
  p.whole_pieces = begin_at_pieces(x) && begin_at_pieces(y);
  return p;
}

CastProblem checked_problem(RankContext& ctx, const Tensor& x, DType to) {
  check_float_tensor(ctx, CastOp::kName, "x", x);
  if (!is_float(to)) fail(CastOp::kName, cat("to ", name_of(to), ", a floating dtype is needed"));
  return with_alignment({x.shape().rows(), x.shape().last(), x.dtype(), to}, x, {});
}

}  // namespace

std::span<const Variant<CastOp>> CastOp::rows() { return kRows; }

Tensor cast(RankContext& ctx, const Tensor& x, DType to, std::string_view variant) {
  const CastProblem p = checked_problem(ctx, x, to);
  if (p.from == p.to) return x;
  const OpCall<CastOp> call(ctx, p, variant);
  Tensor y = run(ctx, call, p, x, Tag::activation);
  call.record({&x}, {}, {&y}, {});
  return y;
}

Tensor cast_values(RankContext& ctx, const Tensor& x, DType to, Tag tag) {
  const CastProblem p = checked_problem(ctx, x, to);
  return run(ctx, OpCall<CastOp>(ctx, p), p, x, tag);
}

void cast_into(RankContext& ctx, const GradSlot& slot, const Tensor& x) {
  const CastProblem p = with_alignment(checked_problem(ctx, x, slot.tensor.dtype()), x, slot.tensor);
  const OpCall<CastOp> call(ctx, p);
  call.run({p, x, slot}, {{"y", slot.tensor}});
}

void CastOp::run_backward(BackwardPass& pass) {
  BackwardCall<CastOp> call(pass);
  const CastProblem& forward = call.problem();
  const GradSlot dx = pass.grad_in(0);
  const CastProblem p =
      with_alignment({forward.rows, forward.cols, forward.to, forward.from}, pass.grad_out(), dx.tensor);
  call.choose(p);
  call.run({p, pass.grad_out(), dx}, {{"dx", dx.tensor}});
}

}  // namespace kiln
