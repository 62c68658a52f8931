#include "abi/callers_gpu.h"

#include <cuda_runtime_api.h>

namespace kiln::abi {

CallersGpu::CallersGpu() {
  if (cudaGetDevice(&index_) == cudaSuccess) return;
  (void)cudaGetLastError();  // no driver, say: what the call needs of CUDA fails with a better message
  index_ = -1;
}

CallersGpu::~CallersGpu() {
  int now = -1;
  const bool moved = index_ >= 0 && cudaGetDevice(&now) == cudaSuccess && now != index_;
  if (moved && cudaSetDevice(index_) != cudaSuccess) (void)cudaGetLastError();
}

Stream callers_stream(void* stream) { return {stream == nullptr ? cudaStreamLegacy : stream}; }

}  // namespace kiln::abi
