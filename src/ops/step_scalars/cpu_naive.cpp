#include <numeric>

#include "ops/cpu_rows.h"
#include "ops/step_scalars/step_scalars.h"

namespace kiln {

void accumulate_loss_cpu_naive(RankContext&, const AccumulateLossForward& f) {
  auto& s = *reinterpret_cast<StepScalars*>(f.scalars.raw());
  with_float(f.p.dtype, [&](auto zero) {
    const double loss = static_cast<double>(widen(f.loss.data<decltype(zero)>()[0]));
    s.loss = (f.p.first ? 0.0 : s.loss) + loss * f.p.weight;
  });
}

void square_sum_cpu_naive(RankContext& ctx, const SquareSumForward& f) {
  auto* const partial = reinterpret_cast<double*>(f.workspace.raw());
  constexpr int64_t kChunk = SquareSumOp::kChunk;
  int64_t first = 0;
  for (const Tensor& range : f.grads) {
    with_float(f.p.dtype, [&](auto zero) {
      const auto* g = range.data<decltype(zero)>();
      ctx.pool().parallel_for(range.numel(), kChunk, [&](int64_t begin, int64_t end) {
        double sum = 0;
        for (int64_t i = begin; i < end; ++i)
          sum += static_cast<double>(widen(g[i])) * static_cast<double>(widen(g[i]));
        partial[first + begin / kChunk] = sum;
      });
    });
    first += SquareSumOp::chunks(range.numel());
  }
  reinterpret_cast<StepScalars*>(f.scalars.raw())->square_sum =
      std::accumulate(partial, partial + first, 0.0);
}

void loss_gradient_cpu_naive(RankContext&, const LossGradientForward& f) {
  const auto& s = *reinterpret_cast<const StepScalars*>(f.scalars.raw());
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    f.grad.data<T>()[0] = static_cast<T>(static_cast<Accum<T>>(f.p.share * s.loss_scale));
  });
}

void finish_step_scalars_cpu_naive(RankContext&, const FinishStepScalarsForward& f) {
  finish(*reinterpret_cast<StepScalars*>(f.scalars.raw()), f.p);
}

}  // namespace kiln
