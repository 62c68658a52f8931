#include "device/gpu_info.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>

#include "base/error.h"

namespace kiln {
namespace {

// A driver that is missing, too old or broken is a fact to report, not an error: callers decide what it
// means.
std::string explain(cudaError_t error) {
  switch (error) {
    case cudaErrorNoDevice:
      return "the CUDA driver sees no GPU";
    case cudaErrorInsufficientDriver: {
      int driver = 0;
      if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return "no NVIDIA driver is installed";
      return "the NVIDIA driver is older than the CUDA this program was built with";
    }
    default:
      return std::string("CUDA does not start: ") + cudaGetErrorString(error);
  }
}

}  // namespace

std::vector<GpuInfo> list_gpus(std::string* why_none) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    (void)cudaGetLastError();  // or a later, unrelated check would find it
    if (why_none != nullptr) *why_none = explain(error == cudaSuccess ? cudaErrorNoDevice : error);
    return {};
  }
  int driver = 0;
  int runtime = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  int current = 0;
  (void)cudaGetDevice(&current);

  std::vector<GpuInfo> gpus;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp prop{};
    if (cudaGetDeviceProperties(&prop, i) != cudaSuccess) continue;
    GpuInfo gpu{.index = i,
                .name = prop.name,
                .major = prop.major,
                .minor = prop.minor,
                .sm_count = prop.multiProcessorCount,
                .l2_bytes = static_cast<std::size_t>(prop.l2CacheSize),
                .total_bytes = prop.totalGlobalMem,
                .free_bytes = 0,
                .driver_version = driver,
                .runtime_version = runtime};
    std::size_t total = 0;
    if (cudaSetDevice(i) == cudaSuccess) (void)cudaMemGetInfo(&gpu.free_bytes, &total);
    gpus.push_back(std::move(gpu));
  }
  (void)cudaSetDevice(current);
  (void)cudaGetLastError();
  if (gpus.empty() && why_none != nullptr) *why_none = "no GPU answered";
  return gpus;
}

std::string pci_bus_of(int index) {
  std::array<char, 64> bus{};
  if (cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), index) == cudaSuccess)
    return bus.data();
  (void)cudaGetLastError();
  return {};
}

std::size_t cublaslt_version() {
  try {
    return cublasLtGetVersion();
  } catch (const Error&) {
    return 0;  // absent: for the caller to report
  }
}

}  // namespace kiln
