// square_sum, fused: the same chunks as naive, each in vectors. Memory bound: one read of the gradients.
#include <numeric>

#include "ops/cpu_fused.h"
#include "ops/step_scalars/step_scalars.h"

#define KILN_SIMD_FILE "ops/step_scalars/cpu_fused_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln {

void square_sum_cpu_fused(RankContext& ctx, const SquareSumForward& f) {
  auto* const partial = reinterpret_cast<double*>(f.workspace.raw());
  constexpr int64_t kChunk = SquareSumOp::kChunk;
  int64_t first = 0;
  with_narrow_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, sum_of_squares<T>);
    for (const Tensor& range : f.grads) {
      const T* g = range.data<T>();
      ctx.pool().parallel_for(range.numel(), kChunk, [&](int64_t begin, int64_t end) {
        partial[first + begin / kChunk] = kernel(g + begin, end - begin);
      });
      first += SquareSumOp::chunks(range.numel());
    }
  });
  reinterpret_cast<StepScalars*>(f.scalars.raw())->square_sum =
      std::accumulate(partial, partial + first, 0.0);
}

}  // namespace kiln
