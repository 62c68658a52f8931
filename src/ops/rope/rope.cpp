#include "ops/rope/rope.h"

#include <cmath>

#include "ops/check.h"
#include "ops/cpu_fused.h"
#include "ops/cuda_fused.h"
#include "ops/op_call.h"

namespace kiln {
namespace {

// Read and write q and k, in either direction; the sines are few compared with them.
Cost cost(const RopeProblem& p, Pass) {
  const double n = static_cast<double>(p.rows()) * static_cast<double>((p.H + p.Hkv) * p.D);
  return {3 * n, 2 * n * static_cast<double>(size_of(p.dtype))};
}

// Half a head in whole packs of 16 bytes (rotate-half reads the two halves apart), and angles that fit the
// kernel's table.
std::string cuda_fused_unsupported(const RopeProblem& p, const DeviceTraits&) {
  if (p.dtype == DType::f64) return "computes in fp32, fp64 runs on naive";
  if (p.pairs() > kRopeMostPairs)
    return cat("takes heads up to ", 2 * kRopeMostPairs, " wide; these are ", p.D);
  const int64_t bytes = p.pairs() * static_cast<int64_t>(size_of(p.dtype));
  if (bytes % kVectorBytes != 0) return cat("takes half heads of whole 16 bytes; these have ", bytes);
  return p.vectorizable ? "" : kNotVectorizable;
}

const Variant<RopeOp> kRows[] = {
    {"fused",
     DeviceType::cpu,
     needs_fp32_or_narrower<RopeProblem>,
     {},
     rope_cpu_fused_workspace,
     cost,
     rope_cpu_fused,
     rope_cpu_fused,
     "rope/cpu_fused.cpp"},
    {"naive",
     DeviceType::cpu,
     nullptr,
     {},
     nullptr,
     cost,
     rope_cpu_naive,
     rope_cpu_naive,
     "rope/cpu_naive.cpp"},
    {"fused",
     DeviceType::cuda,
     cuda_fused_unsupported,
     {},
     nullptr,
     cost,
     KILN_CUDA_FN(rope_cuda_fused),
     KILN_CUDA_FN(rope_cuda_fused),
     "rope_fused_kernel"},
    {"naive",
     DeviceType::cuda,
     nullptr,
     {},
     nullptr,
     cost,
     KILN_CUDA_FN(rope_cuda_naive),
     KILN_CUDA_FN(rope_cuda_naive),
     "rope_kernel"},
};

void check_scaling(const RopeScaling& s) {
  using Kind = RopeScaling::Kind;
  if (s.kind == Kind::none) return;
  if (!(s.factor > 0) || !std::isfinite(s.factor))
    fail(RopeOp::kName, cat("the factor of its scaling is ", s.factor, ", it must be positive"));
  if (s.kind != Kind::linear && s.trained < 1)
    fail(RopeOp::kName, cat("the scaled positions were trained to ", s.trained, ", one at least is needed"));
  if (s.kind == Kind::llama3 && !(s.quick_turns > s.slow_turns))
    fail(RopeOp::kName, cat("its scaling leaves pairs of ", s.quick_turns, " turns and divides those of ",
                            s.slow_turns, ": the first must be more"));
}

RopeProblem checked_problem(RankContext& ctx, const Tensor& q, const Tensor& k, const RopeOptions& o) {
  const char* op = RopeOp::kName;
  check_float_tensor(ctx, op, "q", q);
  check_tensor(ctx, op, "k", k, q.dtype());
  if (q.shape().rank() != 3)
    fail(op, cat("q has shape ", q.shape().str(), ", [B, T, heads * head_dim] is needed"));
  if (o.heads < 1 || o.kv_heads < 1) fail(op, cat(o.heads, " heads and ", o.kv_heads, " key/value heads"));
  if (q.dim(2) % o.heads != 0)
    fail(op, cat("last axis of q is ", q.dim(2), ", not a multiple of ", o.heads, " heads"));
  const int64_t D = q.dim(2) / o.heads;
  if (D % 2 != 0) {
    fail(op, cat("a head is ", D, " wide, an even width is needed"), "rotation works on pairs of values");
  }
  check_shape(op, "k", k.shape(), {q.dim(0), q.dim(1), o.kv_heads * D});
  if (!(o.theta > 0) || !std::isfinite(o.theta)) fail(op, cat("theta is ", o.theta, ", it must be positive"));
  if (o.offset < 0) fail(op, cat("offset is ", o.offset, ", positions start at 0"));
  check_scaling(o.scaling);
  return {q.dim(0),
          q.dim(1),
          o.heads,
          o.kv_heads,
          D,
          q.dtype(),
          o.interleaved,
          o.offset,
          o.theta,
          all_vectorizable(q, k),
          o.scaling,
          o.length > 0 ? o.length : o.offset + q.dim(1)};
}

}  // namespace

std::span<const Variant<RopeOp>> RopeOp::rows() { return kRows; }

RopeResult rope(RankContext& ctx, const Tensor& q, const Tensor& k, const RopeOptions& options) {
  const RopeProblem p = checked_problem(ctx, q, k, options);
  OpCall<RopeOp> call(ctx, p, options.variant);
  RopeResult out{options.in_place ? q.detach() : ctx.empty(q.shape(), p.dtype),
                 options.in_place ? k.detach() : ctx.empty(k.shape(), p.dtype)};
  const Tensor workspace = call.workspace();
  call.run({p, 1, q, k, {out.q, false}, {out.k, false}, workspace}, {{"q", out.q}, {"k", out.k}});
  call.record({&q, &k}, {}, {&out.q, &out.k}, {});
  return out;
}

void RopeOp::run_backward(BackwardPass& pass) {
  BackwardCall<RopeOp> call(pass);
  const GradSlot dq = pass.grad_in(0), dk = pass.grad_in(1);
  RopeProblem p = call.problem();
  p.vectorizable = all_vectorizable(pass.grad_out(0), pass.grad_out(1), dq.tensor, dk.tensor);
  call.choose(p);
  const Tensor workspace = call.workspace();
  call.run({p, -1, pass.grad_out(0), pass.grad_out(1), dq, dk, workspace},
           {{"dq", dq.tensor}, {"dk", dk.tensor}});
}

}  // namespace kiln
