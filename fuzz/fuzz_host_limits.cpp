// The kernel's text files are parsed by our own code; no content may break it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "bounds.h"
#include "device/cpu/host_limits.h"
#include "device/gpu_code.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const kiln::Bounds bounded(size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)kiln::parse_cpu_max(text);
  (void)kiln::parse_memory_limit(text);
  (void)kiln::parse_cgroup_path(text, "");
  (void)kiln::parse_cgroup_path(text, "cpu");
  (void)kiln::parse_meminfo(text, "MemTotal");
  (void)kiln::gpu_code_for(text, 9, 0);
  return 0;
}
