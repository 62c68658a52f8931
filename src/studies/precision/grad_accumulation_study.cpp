#include "studies/precision/grad_accumulation_study.h"

#include <cmath>

#include "autograd/host_floats.h"
#include "autograd/param_store.h"
#include "autograd/tape.h"
#include "base/rng.h"
#include "ops/cast/cast.h"
#include "ops/linear/linear.h"

namespace kiln {
namespace {

struct MicroBatch {
  std::vector<float> x, dy;  // [batch, in], [batch, out]
};

// Mean and deviation alike, so that micro-batches agree in part, as gradients do; dy carries its share 1 / k.
std::vector<MicroBatch> draw_batches(const GradAccumulationRequest& r, int k) {
  const PhiloxKey kx = philox_key(r.seed, "accumulation x"), ky = philox_key(r.seed, "accumulation dy");
  const auto share = static_cast<float>(1.0 / (static_cast<double>(k) * static_cast<double>(r.batch)));
  std::vector<MicroBatch> batches(static_cast<std::size_t>(k));
  uint64_t at = 0;
  for (MicroBatch& b : batches) {
    for (int64_t i = 0; i < r.batch * r.in; ++i) b.x.push_back(1 + philox_normal(kx, at++));
    for (int64_t i = 0; i < r.batch * r.out; ++i) b.dy.push_back(share * (1 + philox_normal(ky, at++)));
  }
  return batches;
}

// dW = sum of dy^T x in fp64, of the numbers as `dtype` holds them.
std::vector<double> exact_gradient(const GradAccumulationRequest& r, const std::vector<MicroBatch>& batches,
                                   DType dtype) {
  const auto held = [&](float x) { return held_in(dtype, static_cast<double>(x)); };
  std::vector<double> dw(static_cast<std::size_t>(r.out * r.in));
  for (const MicroBatch& b : batches) {
    for (int64_t row = 0; row < r.batch; ++row) {
      for (int64_t o = 0; o < r.out; ++o) {
        const double dy = held(b.dy[static_cast<std::size_t>(row * r.out + o)]);
        for (int64_t i = 0; i < r.in; ++i)
          dw[static_cast<std::size_t>(o * r.in + i)] +=
              dy * held(b.x[static_cast<std::size_t>(row * r.in + i)]);
      }
    }
  }
  return dw;
}

std::vector<float> accumulated(const GradAccumulationRequest& r, const std::vector<MicroBatch>& batches,
                               const ParamLayout& layout) {
  RankOptions options;
  options.device = r.device;
  options.threads = 1;
  options.seed = r.seed;
  RankContext ctx(options);
  ParamStore params;
  Param& weight = params.add("weight", {r.out, r.in}, {});
  params.materialize(ctx, layout);
  params.begin_step();
  for (const MicroBatch& b : batches) {
    ctx.tape().reset();
    // A policy that casts at use starts from fp32 activations; the others have the weights' dtype throughout.
    const Tensor x = upload_as(ctx, {r.batch, r.in}, params.policy().value, b.x);
    const Tensor y = linear(ctx, cast_for(ctx, x, weight), weight);
    ctx.tape().backward(y, upload_as(ctx, {r.batch, r.out}, y.dtype(), b.dy));
  }
  std::vector<float> grad(static_cast<std::size_t>(r.out * r.in));
  download_floats(ctx, weight.grad, grad);
  ctx.tape().reset();
  return grad;
}

// The sum after j of k micro-batches is about j / k of the whole, and is rounded there: spacing^2 / 12 is the
// variance of a rounding.
double predicted_rounding(DType arena, const std::vector<double>& right, int k) {
  const FloatFormat format = format_of(arena);
  double variance = 0, size = 0;
  for (double g : right) {
    size += g * g;
    for (int j = 1; j <= k; ++j) variance += std::pow(format.spacing(g * j / k), 2) / 12;
  }
  return std::sqrt(variance / size);
}

}  // namespace

std::vector<GradAccumulationRow> gradient_accumulation(const GradAccumulationRequest& request) {
  const ParamLayout layouts[] = {{.precision = Precision::fp32},
                                 {.precision = Precision::autocast},
                                 {.precision = Precision::fp16},
                                 {.precision = Precision::bf16},
                                 {.precision = Precision::bf16, .narrow_grads = true},
                                 {.precision = Precision::pure_bf16}};
  std::vector<GradAccumulationRow> rows;
  for (const ParamLayout& layout : layouts)
    rows.push_back({layout.precision, policy_of(layout.precision, layout.narrow_grads), {}});
  for (int k : request.micro_batches) {
    const std::vector<MicroBatch> batches = draw_batches(request, k);
    const std::vector<double> right = exact_gradient(request, batches, DType::f64);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      GradAccumulationRow& row = rows[i];
      const double floor = relative_error(exact_gradient(request, batches, row.policy.compute), right);
      const double rounding = predicted_rounding(row.policy.grad, right, k);
      row.cells.push_back({k, relative_error(accumulated(request, batches, layouts[i]), right), floor,
                           std::hypot(floor, rounding)});
    }
  }
  return rows;
}

GradAccumulationReport grad_accumulation_study(const GradAccumulationRequest& request) {
  SumRequest sums = request.sums;
  sums.seed = request.seed;
  sums.device = request.device;
  return {request,
          gradient_accumulation(request),
          {linear_ce_sums(sums), all_reduce_sums(sums), adam_state_sums(sums), softmax_sums(sums)}};
}

}  // namespace kiln
