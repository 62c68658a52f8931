// Every CUDA call goes through KILN_CUDA_CHECK: a failure becomes a kiln::Error that shows the call, CUDA's
// name for what went wrong, and its reason.
#pragma once

#include <driver_types.h>

namespace kiln {

[[noreturn]] void throw_cuda_error(cudaError_t error, const char* call);

inline void check_cuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw_cuda_error(error, call);
}

// After such an error every later call of the process fails in the same way: the GPU's state is gone.
bool is_device_lost(cudaError_t error);

}  // namespace kiln

#define KILN_CUDA_CHECK(call) ::kiln::check_cuda((call), #call)
