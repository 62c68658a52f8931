#include "base/error.h"
#include "device/backend.h"
#include "device/gpu_info.h"

namespace kiln {

std::vector<GpuInfo> list_gpus(std::string* why_none) {
  if (why_none != nullptr) *why_none = "built without CUDA; run `make cuda`";
  return {};
}

std::unique_ptr<Backend> make_cuda_backend(int, bool) {
  throw Error("this kiln was built without CUDA", "run `make cuda` and use build-cuda/kiln",
              ErrorKind::unavailable);
}

std::string pci_bus_of(int) { return {}; }

std::size_t cublaslt_version() { return 0; }

}  // namespace kiln
