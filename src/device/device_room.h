// How much memory a device could still give to one process.
#pragma once

#include <cstddef>

#include "device/device.h"

namespace kiln {

// A GPU's free memory; for the CPU and meta what the machine has and the cgroup allows. SIZE_MAX where nobody
// knows. Starts CUDA where a GPU is asked about.
std::size_t free_memory_on(const Device& device);

}  // namespace kiln
