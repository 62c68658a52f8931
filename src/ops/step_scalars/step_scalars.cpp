#include "ops/step_scalars/step_scalars.h"

#include "ops/check.h"
#include "ops/op_call.h"

namespace kiln {
namespace {

Cost loss_cost(const AccumulateLossProblem&, Pass) { return {2, 24}; }

const Variant<AccumulateLossOp> kLossRows[] = {
    {"naive", DeviceType::cpu, nullptr, {}, nullptr, loss_cost, accumulate_loss_cpu_naive, nullptr},
    {"naive",
     DeviceType::cuda,
     nullptr,
     {},
     nullptr,
     loss_cost,
     KILN_CUDA_FN(accumulate_loss_cuda_naive),
     nullptr},
};

Cost verdict_cost(const StepVerdictProblem& p, Pass) {
  return {2.0 * static_cast<double>(p.count),
          static_cast<double>(p.count) * static_cast<double>(size_of(p.dtype))};
}

std::size_t verdict_workspace(const StepVerdictProblem& p, Pass) {
  return static_cast<std::size_t>(StepVerdictOp::chunks(p)) * sizeof(double);
}

const Variant<StepVerdictOp> kVerdictRows[] = {
    {"naive", DeviceType::cpu, nullptr, {}, verdict_workspace, verdict_cost, step_verdict_cpu_naive, nullptr},
    {"naive",
     DeviceType::cuda,
     nullptr,
     {},
     verdict_workspace,
     verdict_cost,
     KILN_CUDA_FN(step_verdict_cuda_naive),
     nullptr},
};

}  // namespace

std::span<const Variant<AccumulateLossOp>> AccumulateLossOp::rows() { return kLossRows; }
std::span<const Variant<StepVerdictOp>> StepVerdictOp::rows() { return kVerdictRows; }

Tensor make_step_scalars(RankContext& ctx) {
  Tensor t = ctx.empty({static_cast<int64_t>(sizeof(StepScalars))}, DType::u8, Tag::optim);
  const StepScalars fresh;
  ctx.upload(t, &fresh);
  return t;
}

void accumulate_loss(RankContext& ctx, const Tensor& loss, const Tensor& scalars, bool first, double weight) {
  check_float_tensor(ctx, AccumulateLossOp::kName, "loss", loss);
  const AccumulateLossProblem p{loss.dtype(), first, weight};
  OpCall<AccumulateLossOp> call(ctx, p);
  call.run({p, loss, scalars}, {});
}

void step_verdict(RankContext& ctx, const Tensor& grads, const Tensor& scalars, double max_norm, double beta1,
                  double beta2, std::string_view variant) {
  check_float_tensor(ctx, StepVerdictOp::kName, "grads", grads);
  const StepVerdictProblem p{grads.numel(), grads.dtype(), max_norm, beta1, beta2};
  OpCall<StepVerdictOp> call(ctx, p, variant);
  const Tensor scratch = call.workspace();
  call.run({p, grads, scalars, scratch}, {});
}

}  // namespace kiln
