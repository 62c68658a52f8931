// The resources this process may use: processors by affinity mask and cgroup quota, memory by cgroup limit.
// A container on a 64-core host often gets two; a thread pool of 64 would oversubscribe them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kiln {

struct HostLimits {
  int cpus_online = 1;
  int cpus_allowed = 1;                        // by affinity mask
  std::optional<double> cgroup_cpus;           // quota over period, where one is set
  int cpus_usable = 1;                         // what to start threads for: both limits applied, at least one
  std::uint64_t memory_total = 0;              // bytes
  std::uint64_t memory_available = 0;          // bytes that can be had without swapping
  std::optional<std::uint64_t> cgroup_memory;  // bytes, where a limit is set
};

HostLimits read_host_limits();

// "200000 100000" -> 2; "max 100000" and anything malformed -> nothing. The format of cgroup v2's cpu.max.
std::optional<double> parse_cpu_max(std::string_view text);

// "8589934592\n" -> that many; "max", v1's "unlimited" sentinel and anything malformed -> nothing.
std::optional<std::uint64_t> parse_memory_limit(std::string_view text);

// The path of `controller` ("cpu", "memory"; "" is cgroup v2) in the text of /proc/self/cgroup, if it is
// there.
std::optional<std::string_view> parse_cgroup_path(std::string_view text, std::string_view controller);

// The value in kB of `key` in the text of /proc/meminfo, as bytes; 0 when absent.
std::uint64_t parse_meminfo(std::string_view text, std::string_view key);

}  // namespace kiln
