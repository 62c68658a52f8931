#include "abi/callers_gpu.h"

#include <cuda_runtime_api.h>

namespace kiln::abi {

int current_gpu() {
  int index = -1;
  if (cudaGetDevice(&index) == cudaSuccess) return index;
  (void)cudaGetLastError();  // no driver, say: what the call needs of CUDA fails with a better message
  return -1;
}

void restore_gpu(int index) {
  const int now = current_gpu();
  const bool moved = index >= 0 && now >= 0 && now != index;
  if (moved && cudaSetDevice(index) != cudaSuccess) (void)cudaGetLastError();
}

Stream callers_stream(void* stream) { return {stream == nullptr ? cudaStreamLegacy : stream}; }

}  // namespace kiln::abi
