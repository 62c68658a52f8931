#include "ops/step_scalars/step_scalars.h"

#include "ops/check.h"
#include "ops/cpu_fused.h"
#include "ops/op_call.h"

namespace kiln {
namespace {

Cost loss_cost(const AccumulateLossProblem&, Pass) { return {2, 24}; }

const Variant<AccumulateLossOp> kLossRows[] = {
    {"naive",
     DeviceType::cpu,
     nullptr,
     {},
     nullptr,
     loss_cost,
     accumulate_loss_cpu_naive,
     nullptr,
     "step_scalars/cpu_naive.cpp"},
    {"naive",
     DeviceType::cuda,
     nullptr,
     {},
     nullptr,
     loss_cost,
     KILN_CUDA_FN(accumulate_loss_cuda_naive),
     nullptr,
     "accumulate_loss_kernel"},
};

Cost square_cost(const SquareSumProblem& p, Pass) {
  return {2.0 * static_cast<double>(p.count),
          static_cast<double>(p.count) * static_cast<double>(size_of(p.dtype))};
}

std::size_t square_workspace(const SquareSumProblem& p, Pass) {
  return static_cast<std::size_t>(SquareSumOp::chunks(p)) * sizeof(double);
}

std::size_t block_squares_workspace(const SquareSumProblem& p, Pass) {
  return static_cast<std::size_t>(SquareSumOp::launches(p) * SquareSumOp::blocks(p)) * sizeof(double);
}

const Variant<SquareSumOp> kSquareRows[] = {
    {"fused",
     DeviceType::cpu,
     needs_fp32_or_narrower<SquareSumProblem>,
     {},
     square_workspace,
     square_cost,
     square_sum_cpu_fused,
     nullptr,
     "step_scalars/cpu_fused.cpp"},
    {"naive",
     DeviceType::cpu,
     nullptr,
     {},
     square_workspace,
     square_cost,
     square_sum_cpu_naive,
     nullptr,
     "step_scalars/cpu_naive.cpp"},
    {"fused",
     DeviceType::cuda,
     needs_fp32_or_narrower<SquareSumProblem>,
     {},
     block_squares_workspace,
     square_cost,
     KILN_CUDA_FN(square_sum_cuda_fused),
     nullptr,
     "block_squares_kernel sum_partial_squares_kernel"},
    {"naive",
     DeviceType::cuda,
     nullptr,
     {},
     square_workspace,
     square_cost,
     KILN_CUDA_FN(square_sum_cuda_naive),
     nullptr,
     "chunk_squares_kernel sum_partial_squares_kernel"},
};

Cost finish_cost(const FinishStepScalarsProblem&, Pass) { return {4, 2 * sizeof(StepScalars)}; }

const Variant<FinishStepScalarsOp> kFinishRows[] = {
    {"naive",
     DeviceType::cpu,
     nullptr,
     {},
     nullptr,
     finish_cost,
     finish_step_scalars_cpu_naive,
     nullptr,
     "step_scalars/cpu_naive.cpp"},
    {"naive",
     DeviceType::cuda,
     nullptr,
     {},
     nullptr,
     finish_cost,
     KILN_CUDA_FN(finish_step_scalars_cuda_naive),
     nullptr,
     "finish_step_scalars_kernel"},
};

Cost loss_gradient_cost(const LossGradientProblem&, Pass) { return {1, 16}; }

const Variant<LossGradientOp> kLossGradientRows[] = {
    {"naive",
     DeviceType::cpu,
     nullptr,
     {},
     nullptr,
     loss_gradient_cost,
     loss_gradient_cpu_naive,
     nullptr,
     "step_scalars/cpu_naive.cpp"},
    {"naive",
     DeviceType::cuda,
     nullptr,
     {},
     nullptr,
     loss_gradient_cost,
     KILN_CUDA_FN(loss_gradient_cuda_naive),
     nullptr,
     "loss_gradient_kernel"},
};

}  // namespace

std::span<const Variant<AccumulateLossOp>> AccumulateLossOp::rows() { return kLossRows; }
std::span<const Variant<SquareSumOp>> SquareSumOp::rows() { return kSquareRows; }
std::span<const Variant<FinishStepScalarsOp>> FinishStepScalarsOp::rows() { return kFinishRows; }
std::span<const Variant<LossGradientOp>> LossGradientOp::rows() { return kLossGradientRows; }

Tensor make_step_scalars(RankContext& ctx, double loss_scale) {
  Tensor t = ctx.empty({static_cast<int64_t>(sizeof(StepScalars))}, DType::u8, Tag::optim);
  StepScalars fresh;
  fresh.loss_scale = loss_scale;
  ctx.upload(t, &fresh);
  return t;
}

Tensor loss_and_squares(const Tensor& scalars) {
  static_assert(offsetof(StepScalars, square_sum) == offsetof(StepScalars, loss) + sizeof(double));
  return scalars.narrow(0, offsetof(StepScalars, loss), 2 * sizeof(double)).view_as(DType::f64);
}

void accumulate_loss(RankContext& ctx, const Tensor& loss, const Tensor& scalars, bool first, double weight) {
  check_float_tensor(ctx, AccumulateLossOp::kName, "loss", loss);
  const AccumulateLossProblem p{loss.dtype(), first, weight};
  OpCall<AccumulateLossOp> call(ctx, p);
  call.run({p, loss, scalars}, {});
}

void square_sum(RankContext& ctx, std::span<const Tensor> grads, const Tensor& scalars,
                std::string_view variant) {
  SquareSumProblem p{0, grads.empty() ? DType::f32 : grads.front().dtype(),
                     static_cast<int64_t>(grads.size())};
  for (const Tensor& range : grads) {
    check_float_tensor(ctx, SquareSumOp::kName, "grads", range);
    if (range.dtype() != p.dtype)
      throw Error(cat("[", SquareSumOp::kName, "] ranges of one dtype are wanted, got ", name_of(p.dtype),
                      " and ", name_of(range.dtype())));
    p.count += range.numel();
  }
  OpCall<SquareSumOp> call(ctx, p, variant);
  const Tensor scratch = call.workspace();
  call.run({p, grads, scalars, scratch}, {});
}

void finish_step_scalars(RankContext& ctx, const Tensor& scalars, double max_norm, const StepRates& rates,
                         int64_t scale_interval, int64_t max_skips) {
  const FinishStepScalarsProblem p{max_norm, rates, scale_interval, max_skips};
  OpCall<FinishStepScalarsOp> call(ctx, p);
  call.run({p, scalars}, {});
}

void loss_gradient(RankContext& ctx, const Tensor& scalars, double share, const Tensor& grad) {
  check_float_tensor(ctx, LossGradientOp::kName, "grad", grad);
  const LossGradientProblem p{grad.dtype(), share};
  OpCall<LossGradientOp> call(ctx, p);
  call.run({p, scalars, grad}, {{"grad", grad}});
}

}  // namespace kiln
