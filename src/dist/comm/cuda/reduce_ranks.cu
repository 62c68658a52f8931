// One thread per element reads every rank's copy and writes every destination: for an all-reduce by `world`
// ranks, each on its chunk, 2 x world x count x element size bytes in total, the memory bound.
#include "device/cuda/cuda_backend.h"
#include "device/cuda/launch.h"
#include "dist/comm/reduce_ranks.h"

namespace kiln {
namespace {

template <class T>
__global__ void reduce_kernel(RankMemory dst, RankMemory src, int64_t count) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i >= count) return;
  // Unrolled to the most there may be, so that all stay in registers.
  Accum<T> v[kMaxThreadRanks] = {};
#pragma unroll
  for (int r = 0; r < kMaxThreadRanks; ++r) {
    if (r < src.count) v[r] = static_cast<Accum<T>>(reinterpret_cast<const T*>(src.data[r])[i]);
  }
#pragma unroll
  for (int width = 1; width < kMaxThreadRanks; width *= 2) {
#pragma unroll
    for (int r = 0; r + width < kMaxThreadRanks; r += 2 * width) {
      if (r + width < src.count) v[r] += v[r + width];
    }
  }
  for (int d = 0; d < dst.count; ++d) reinterpret_cast<T*>(dst.data[d])[i] = static_cast<T>(v[0]);
}

}  // namespace

void reduce_ranks_cuda(Backend& backend, Stream stream, const RankMemory& dst, const RankMemory& src,
                       int64_t count, DType dtype) {
  static_cast<CudaBackend&>(backend).activate();  // its device is this thread's current one from here on
  with_float(dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int64_t kThreads = 256;
    launch(reduce_kernel<T>, Grid((count + kThreads - 1) / kThreads), dim3(kThreads), 0, stream, dst, src,
           count);
  });
}

}  // namespace kiln
