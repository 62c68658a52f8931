// One thread per element reads every rank's copy and writes every destination: for an all-reduce by `world`
// ranks, each on its chunk, 2 x world x count x element size bytes in all, the floor.
#include "device/cuda/cuda_backend.h"
#include "device/cuda/launch.h"
#include "dist/comm/reduce_ranks.h"

namespace kiln {
namespace {

template <class T>
__global__ void reduce_kernel(RankMemory dst, RankMemory src, int64_t count) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i >= count) return;
  Accum<T> sum = static_cast<Accum<T>>(reinterpret_cast<const T*>(src.data[0])[i]);
  for (int r = 1; r < src.count; ++r)
    sum += static_cast<Accum<T>>(reinterpret_cast<const T*>(src.data[r])[i]);
  for (int d = 0; d < dst.count; ++d) reinterpret_cast<T*>(dst.data[d])[i] = static_cast<T>(sum);
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
