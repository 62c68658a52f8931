#include "device/device_room.h"

#include <algorithm>
#include <cstdint>

#include "device/cpu/host_limits.h"
#include "device/gpu_info.h"

namespace kiln {

std::size_t free_memory_on(const Device& device) {
  if (device.type == DeviceType::cuda) {
    for (const GpuInfo& gpu : list_gpus()) {
      if (gpu.index == device.index) return gpu.free_bytes == 0 ? SIZE_MAX : gpu.free_bytes;
    }
    return SIZE_MAX;
  }
  const HostLimits host = read_host_limits();
  const std::uint64_t room =
      std::min(host.memory_available, host.cgroup_memory.value_or(host.memory_available));
  return room == 0 ? SIZE_MAX : room;
}

}  // namespace kiln
