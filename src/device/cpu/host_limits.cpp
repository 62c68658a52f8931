#include "device/cpu/host_limits.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>

namespace kiln {
namespace {

// Beyond this a "limit" is v1's way to say there is none (it rounds 2^63 down to a page).
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string_view trim(std::string_view s) {
  constexpr std::string_view kBlank = " \t\r\n";
  const auto first = s.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return s.substr(first, s.find_last_not_of(kBlank) - first + 1);
}

template <class T>
std::optional<T> parse_whole(std::string_view s) {
  T value{};
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (error != std::errc{} || end != s.data() + s.size()) return std::nullopt;
  return value;
}

// Takes the next line off `text`.
std::string_view next_line(std::string_view& text) {
  const auto end = text.find('\n');
  const auto line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

template <class T>
void keep_smaller(std::optional<T>& kept, const std::optional<T>& seen) {
  if (seen && (!kept || *seen < *kept)) kept = seen;
}

std::optional<double> read_v1_quota(const std::string& folder) {
  const auto quota = parse_whole<long long>(trim(read_text(folder + "/cpu.cfs_quota_us")));
  const auto period = parse_whole<long long>(trim(read_text(folder + "/cpu.cfs_period_us")));
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

// Calls visit(folder) for the cgroup at mount + path and all its parents: a parent's limit binds its
// children. Inside a container the path may belong to the host's tree; what does not exist reads as no limit.
template <class Visit>
void for_each_level(const std::string& mount, std::string_view path, Visit visit) {
  std::string below(path);
  while (true) {
    while (!below.empty() && below.back() == '/') below.pop_back();
    visit(mount + below);
    const auto slash = below.rfind('/');
    if (slash == std::string::npos) return;
    below.resize(slash);
  }
}

void read_cgroups(HostLimits& limits) {
  const std::string groups = read_text("/proc/self/cgroup");
  if (const auto path = parse_cgroup_path(groups, "")) {
    for_each_level("/sys/fs/cgroup", *path, [&](const std::string& folder) {
      keep_smaller(limits.cgroup_cpus, parse_cpu_max(read_text(folder + "/cpu.max")));
      keep_smaller(limits.cgroup_memory, parse_memory_limit(read_text(folder + "/memory.max")));
    });
  }
  if (const auto path = parse_cgroup_path(groups, "cpu")) {
    for_each_level("/sys/fs/cgroup/cpu", *path, [&](const std::string& folder) {
      keep_smaller(limits.cgroup_cpus, read_v1_quota(folder));
    });
  }
  if (const auto path = parse_cgroup_path(groups, "memory")) {
    for_each_level("/sys/fs/cgroup/memory", *path, [&](const std::string& folder) {
      keep_smaller(limits.cgroup_memory, parse_memory_limit(read_text(folder + "/memory.limit_in_bytes")));
    });
  }
}

int count_allowed_cpus(int fallback) {
  // The kernel refuses a mask smaller than its own, and hosts of more than 1024 processors exist.
  for (int size = 1024; size <= 1 << 20; size *= 2) {
    cpu_set_t* mask = CPU_ALLOC(size);
    if (mask == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(size);
    const bool ok = sched_getaffinity(0, bytes, mask) == 0;
    const int count = ok ? CPU_COUNT_S(bytes, mask) : 0;
    CPU_FREE(mask);
    if (ok) return std::max(count, 1);
  }
  return fallback;
}

}  // namespace

std::optional<double> parse_cpu_max(std::string_view text) {
  text = trim(text);
  const auto blank = text.find(' ');
  if (blank == std::string_view::npos) return std::nullopt;
  const auto quota = parse_whole<std::uint64_t>(text.substr(0, blank));
  const auto period = parse_whole<std::uint64_t>(trim(text.substr(blank)));
  if (!quota || !period || *quota == 0 || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<std::uint64_t> parse_memory_limit(std::string_view text) {
  const auto value = parse_whole<std::uint64_t>(trim(text));
  if (!value || *value >= kNoLimit) return std::nullopt;
  return value;
}

std::optional<std::string_view> parse_cgroup_path(std::string_view text, std::string_view controller) {
  while (!text.empty()) {
    std::string_view line = next_line(text);  // "4:cpu,cpuacct:/path"; v2 is "0::/path"
    const auto first = line.find(':');
    if (first == std::string_view::npos) continue;
    line.remove_prefix(first + 1);
    const auto second = line.find(':');
    if (second == std::string_view::npos) continue;
    std::string_view names = line.substr(0, second);
    const std::string_view path = line.substr(second + 1);
    if (controller.empty() && names.empty()) return path;
    while (!controller.empty() && !names.empty()) {
      const auto comma = names.find(',');
      if (names.substr(0, comma) == controller) return path;
      names.remove_prefix(comma == std::string_view::npos ? names.size() : comma + 1);
    }
  }
  return std::nullopt;
}

std::uint64_t parse_meminfo(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    std::string_view line = next_line(text);  // "MemTotal:       16384000 kB"
    if (!line.starts_with(key) || !line.substr(key.size()).starts_with(":")) continue;
    line = trim(line.substr(key.size() + 1));
    const auto kib = parse_whole<std::uint64_t>(line.substr(0, line.find(' ')));
    return kib && *kib < kNoLimit / 1024 ? *kib * 1024 : 0;
  }
  return 0;
}

HostLimits read_host_limits() {
  HostLimits limits;
  limits.cpus_online = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  limits.cpus_allowed = count_allowed_cpus(limits.cpus_online);
  read_cgroups(limits);
  limits.cpus_usable = limits.cpus_allowed;
  if (limits.cgroup_cpus && *limits.cgroup_cpus < limits.cpus_allowed) {
    limits.cpus_usable = std::max(1, static_cast<int>(std::ceil(*limits.cgroup_cpus)));
  }
  const std::string meminfo = read_text("/proc/meminfo");
  limits.memory_total = parse_meminfo(meminfo, "MemTotal");
  limits.memory_available = parse_meminfo(meminfo, "MemAvailable");
  return limits;
}

}  // namespace kiln
