#include "gpu/shared_memory.h"

#include "device/cuda/cuda_check.h"
#include "device/cuda/launch.h"
#include "ops/cuda_device/rank.h"

namespace kiln {
namespace {

// Each block has all the shared memory that one can have, so it is alone on its multiprocessor; it stays
// until all have come, so that no multiprocessor is left out.
__global__ void fill_shared_memory(unsigned char value, int bytes, int* arrived) {
  extern __shared__ unsigned char memory[];
  for (int i = static_cast<int>(threadIdx.x); i < bytes; i += static_cast<int>(blockDim.x)) memory[i] = value;
  __syncthreads();
  if (threadIdx.x != 0) return;
  atomicAdd(arrived, 1);
  while (*static_cast<volatile int*>(arrived) < static_cast<int>(gridDim.x)) {
  }
}

}  // namespace

void poison_shared_memory(RankContext& ctx) {
  const Stream stream = cuda_stream(ctx);  // makes the rank's GPU current
  int device = 0, multiprocessors = 0, bytes = 0;
  KILN_CUDA_CHECK(cudaGetDevice(&device));
  KILN_CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  KILN_CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  const Tensor arrived = ctx.zeros({1}, DType::i32, Tag::workspace);
  launch(fill_shared_memory, Grid(multiprocessors), 256, static_cast<std::size_t>(bytes), stream,
         static_cast<unsigned char>(0xff), bytes, arrived.data<int32_t>());
}

}  // namespace kiln
