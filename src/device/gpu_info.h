// The GPUs this program could use, for `kiln doctor` and for messages about their absence. Listing them
// starts CUDA on each (some 100 ms), so training asks its own device instead.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kiln {

struct GpuInfo {
  int index = 0;
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int sm_count = 0;
  std::size_t l2_bytes = 0;
  std::size_t total_bytes = 0;
  std::size_t free_bytes = 0;
  int driver_version = 0;   // newest CUDA the driver can run: 13000 is 13.0
  int runtime_version = 0;  // CUDA this program was built with
};

// Empty when there is none; *why_none (where given) then says why in one line.
std::vector<GpuInfo> list_gpus(std::string* why_none = nullptr);

// Where the GPU is plugged in, "0000:18:00.0"; empty where there is none. Starts the driver, not the GPU.
std::string pci_bus_of(int index);

// Of the cuBLASLt loaded at run time (130100 is 13.1.0), or 0 where there is none. Loads it: some 100 ms.
std::size_t cublaslt_version();

}  // namespace kiln
