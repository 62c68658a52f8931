#include "dist/comm/reduce_ranks.h"

#include "ops/cpu_rows.h"

namespace kiln {

void reduce_ranks(RankContext& ctx, std::byte* dst, const RankSources& src, int64_t count, DType dtype) {
  if (ctx.device().is_meta() || count == 0) return;
  if (ctx.device().type == DeviceType::cuda) {
    reduce_ranks_cuda(ctx, dst, src, count, dtype);
    return;
  }
  with_float(dtype, [&](auto zero) {
    using T = decltype(zero);
    ctx.pool().parallel_for(count, 8192, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        Accum<T> sum = widen(reinterpret_cast<const T*>(src.data[0])[i]);
        for (int r = 1; r < src.world; ++r) sum += widen(reinterpret_cast<const T*>(src.data[r])[i]);
        reinterpret_cast<T*>(dst)[i] = static_cast<T>(sum);
      }
    });
  });
}

}  // namespace kiln
