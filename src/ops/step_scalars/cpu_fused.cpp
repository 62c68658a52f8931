// square_sum, fused: the same chunks as naive, each in vectors. Floor: one read of the gradients.
#include "ops/cpu_fused.h"
#include "ops/step_scalars/step_scalars.h"

#define KILN_SIMD_FILE "ops/step_scalars/cpu_fused_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln {

void square_sum_cpu_fused(RankContext& ctx, const SquareSumForward& f) {
  auto* partial = reinterpret_cast<double*>(f.workspace.raw());
  constexpr int64_t kChunk = SquareSumOp::kChunk;
  with_narrow_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* g = f.grads.data<T>();
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, sum_of_squares<T>);
    ctx.pool().parallel_for(f.p.count, kChunk, [&](int64_t begin, int64_t end) {
      partial[begin / kChunk] = kernel(g + begin, end - begin);
    });
  });
  double& total = reinterpret_cast<StepScalars*>(f.scalars.raw())->square_sum;
  double sum = f.p.add ? total : 0;
  for (int64_t c = 0; c < SquareSumOp::chunks(f.p); ++c) sum += partial[c];
  total = sum;
}

}  // namespace kiln
