#include "device/gpu_info.h"

namespace kiln {

std::vector<GpuInfo> list_gpus(std::string* why_none) {
  if (why_none != nullptr) *why_none = "built without CUDA; run `make cuda`";
  return {};
}

std::size_t cublaslt_version() { return 0; }

}  // namespace kiln
