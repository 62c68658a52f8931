#include "device/cuda/launch.h"

#include <cxxabi.h>

#include <cstdlib>
#include <string>

#include "base/build_info.h"
#include "base/error.h"
#include "base/kernel_log.h"
#include "device/cuda/cuda_check.h"
#include "device/gpu_code.h"

namespace kiln {
namespace {

std::string name_of_kernel(const void* kernel) {
  const char* mangled = nullptr;
  if (cudaFuncGetName(&mangled, kernel) != cudaSuccess || mangled == nullptr) return "a kernel";
  int status = 0;
  char* readable = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = status == 0 && readable != nullptr ? readable : mangled;
  std::free(readable);
  return name;
}

}  // namespace

dim3 checked_grid(const void* kernel, const Grid& grid, Stream stream) {
  if (KernelLog::listening()) KernelLog::note(name_of_kernel(kernel));
  if (stream.handle == nullptr) {
    throw Error(cat("[cuda] ", name_of_kernel(kernel), " was launched without a stream"));
  }
  if (grid.x < 0 || grid.y < 0 || grid.x > INT32_MAX || grid.y > 65535) {
    throw Error(cat("[cuda] ", name_of_kernel(kernel), " would need a grid of ", grid.x, " x ", grid.y,
                    " blocks; ", INT32_MAX, " x 65535 is the most"));
  }
  return dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y));
}

void allow_shared_memory(const void* kernel, std::size_t bytes) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error == cudaSuccess) return;
  throw_cuda_error(error,
                   cat(bytes, " bytes of shared memory for a block of ", name_of_kernel(kernel)).c_str());
}

bool pdl_available() {
  int device = 0, major = 0, minor = 0;
  KILN_CUDA_CHECK(cudaGetDevice(&device));
  KILN_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  KILN_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return newest_code_for(build_info().cuda_archs, major, minor) >= 90;  // a newer GPU may run PTX for sm_80
}

void throw_launch_error(const void* kernel, const Grid& grid, dim3 block, std::size_t smem,
                        cudaError_t error) {
  const std::string call = cat("launch of ", name_of_kernel(kernel), ", grid ", grid.x, " x ", grid.y,
                               ", block ", block.x, " x ", block.y, ", ", smem, " bytes of shared memory");
  throw_cuda_error(error, call.c_str());
}

}  // namespace kiln
