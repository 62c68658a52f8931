// One thread per element reads every rank's copy: (world + 1) x count x element size bytes, the floor.
#include "device/cuda/launch.h"
#include "dist/comm/reduce_ranks.h"
#include "ops/cuda_device/rank.h"

namespace kiln {
namespace {

template <class T>
__global__ void reduce_kernel(T* dst, RankSources src, int64_t count) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i >= count) return;
  Accum<T> sum = static_cast<Accum<T>>(reinterpret_cast<const T*>(src.data[0])[i]);
  for (int r = 1; r < src.world; ++r)
    sum += static_cast<Accum<T>>(reinterpret_cast<const T*>(src.data[r])[i]);
  dst[i] = static_cast<T>(sum);
}

}  // namespace

void reduce_ranks_cuda(RankContext& ctx, std::byte* dst, const RankSources& src, int64_t count, DType dtype) {
  cuda_backend(ctx);  // its device is this thread's current one from here on
  with_float(dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int64_t kThreads = 256;
    launch(reduce_kernel<T>, Grid((count + kThreads - 1) / kThreads), dim3(kThreads), 0, ctx.comm(),
           reinterpret_cast<T*>(dst), src, count);
  });
}

}  // namespace kiln
