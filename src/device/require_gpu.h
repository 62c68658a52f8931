// `--device cuda` on a machine without that GPU.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "device/gpu_info.h"

namespace kiln {

// Throws Error(unavailable) with the reason when `device` (a checked --device) names a GPU that is not there.
void require_gpu(std::string_view device, std::span<const GpuInfo> gpus, std::string_view why_none);

}  // namespace kiln
