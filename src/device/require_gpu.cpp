#include "device/require_gpu.h"

#include <fmt/format.h>

#include "base/error.h"

namespace kiln {

void require_gpu(std::string_view device, std::span<const GpuInfo> gpus, std::string_view why_none) {
  if (!device.starts_with("cuda")) return;
  if (gpus.empty()) {
    throw Error(fmt::format("{} is not available: {}", device, why_none),
                "`kiln doctor` says more; --device cpu and meta work without a GPU", ErrorKind::unavailable);
  }
  const int wanted = device == "cuda" ? 0 : std::stoi(std::string(device.substr(device.find(':') + 1)));
  for (const GpuInfo& gpu : gpus) {
    if (device == "cuda" || gpu.index == wanted) return;
  }
  throw Error(fmt::format("{} is not available: this machine has {} GPU(s), counted from cuda:0", device,
                          gpus.size()),
              "`kiln doctor` lists them", ErrorKind::unavailable);
}

}  // namespace kiln
