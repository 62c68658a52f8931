#include "device/cuda/cuda_check.h"

#include <cuda_runtime_api.h>

#include "base/error.h"

namespace kiln {

bool is_device_lost(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorContained:
      return true;
    default:
      return false;
  }
}

namespace {

const char* hint_for(cudaError_t error) {
  if (error == cudaErrorMemoryAllocation) return "another program may hold the GPU's memory: see nvidia-smi";
  if (error == cudaErrorECCUncorrectable) return "the GPU's memory failed: see `nvidia-smi -q -d ECC`";
  if (is_device_lost(error)) {
    return "an earlier kernel is at fault; KILN_ALLOC=raw under compute-sanitizer names it";
  }
  return "";
}

}  // namespace

void throw_cuda_error(cudaError_t error, const char* call) {
  (void)cudaGetLastError();  // or the next, unrelated check would report this one again
  throw Error(cat("[cuda] ", call, ": ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")"),
              hint_for(error));
}

}  // namespace kiln
