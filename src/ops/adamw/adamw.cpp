#include "ops/adamw/adamw.h"

#include "ops/check.h"
#include "ops/cpu_fused.h"
#include "ops/op_call.h"

namespace kiln {
namespace {

// Reads w, g, m, v and writes w, m, v. The memory bound: no fusion can move less.
Cost cost(const AdamWProblem& p, Pass) {
  const double n = static_cast<double>(p.count), state = static_cast<double>(size_of(p.state));
  const double weight = static_cast<double>(size_of(p.dtype) + (p.split ? 2 : 0));
  return {14 * n, n * (2 * weight + static_cast<double>(size_of(p.grad_dtype)) + 4 * state)};
}

std::string one_parameter_at_a_time(const AdamWProblem& p, const DeviceTraits&) {
  return p.segments > 0 ? "takes one parameter at a time" : "";
}

const Variant<AdamWOp> kRows[] = {
    {"fused",
     DeviceType::cpu,
     needs_fp32_or_narrower<AdamWProblem>,
     {},
     nullptr,
     cost,
     adamw_cpu_fused,
     nullptr,
     "adamw/cpu_fused.cpp"},
    {"naive",
     DeviceType::cpu,
     one_parameter_at_a_time,
     {},
     nullptr,
     cost,
     adamw_cpu_naive,
     nullptr,
     "adamw/cpu_naive.cpp"},
    {"fused",
     DeviceType::cuda,
     needs_fp32_or_narrower<AdamWProblem>,
     {},
     nullptr,
     cost,
     KILN_CUDA_FN(adamw_cuda_fused),
     nullptr,
     "adamw_fused_kernel"},
    {"naive",
     DeviceType::cuda,
     one_parameter_at_a_time,
     {},
     nullptr,
     cost,
     KILN_CUDA_FN(adamw_cuda_naive),
     nullptr,
     "adamw_kernel"},
};

void run(RankContext& ctx, const AdamWProblem& p, const AdamWTensors& t, const Tensor& scalars,
         const Tensor& segments, std::string_view variant) {
  const char* op = AdamWOp::kName;
  check_float_tensor(ctx, op, "value", t.value);
  check_float_tensor(ctx, op, "grad", t.grad);
  if (p.state != p.dtype && p.state != stat_dtype(p.dtype))
    fail(op, cat("moments in ", name_of(p.state), " for weights in ", name_of(p.dtype)));
  check_tensor(ctx, op, "m", t.m, p.state);
  check_tensor(ctx, op, "v", t.v, p.state);
  for (const Tensor* other : {&t.grad, &t.m, &t.v}) {
    if (other->numel() != p.count) fail(op, cat("a range of ", other->numel(), " for ", p.count, " weights"));
  }
  if (p.split) {
    check_tensor(ctx, op, "value", t.value, DType::bf16);
    check_tensor(ctx, op, "low", t.low, DType::i16);
  }
  OpCall<AdamWOp> call(ctx, p, variant);
  call.run({p, t.value, t.low, t.grad, t.m, t.v, scalars, segments}, {{"value", t.value}});
}

AdamWProblem problem(const AdamWTensors& t, double beta1, double beta2, double eps, double decay) {
  return {t.value.numel(), t.value.dtype(), t.grad.dtype(), t.low.defined(), beta1, beta2, eps,
          decay,           t.m.dtype()};
}

}  // namespace

std::span<const Variant<AdamWOp>> AdamWOp::rows() { return kRows; }

void adamw(RankContext& ctx, const AdamWTensors& t, const Tensor& scalars, double beta1, double beta2,
           double eps, double decay, std::string_view variant, const BetaPowers& before) {
  AdamWProblem p = problem(t, beta1, beta2, eps, decay);
  p.power1 = before.one;
  p.power2 = before.two;
  run(ctx, p, t, scalars, Tensor(), variant);
}

void adamw_range(RankContext& ctx, const AdamWTensors& t, const Tensor& scalars, double beta1, double beta2,
                 double eps, const Tensor& segments, std::string_view variant, const BetaPowers& before) {
  AdamWProblem p = problem(t, beta1, beta2, eps, 0);
  p.power1 = before.one;
  p.power2 = before.two;
  p.segments = segments.numel() / static_cast<int64_t>(sizeof(DecaySegment));
  run(ctx, p, t, scalars, segments, variant);
}

bool adamw_takes_ranges(RankContext& ctx, const AdamWTensors& t) {
  const AdamWProblem p = problem(t, 0, 0, 0, 0);
  const Variant<AdamWOp>& row = select<AdamWOp>(ctx, p, {});
  return row.unsupported != one_parameter_at_a_time;
}

Tensor make_decay_segments(RankContext& ctx, std::span<const DecaySegment> segments) {
  Tensor t = ctx.empty({static_cast<int64_t>(segments.size_bytes())}, DType::u8, Tag::optim);
  ctx.upload(t, segments.data());
  return t;
}

}  // namespace kiln
