#include "device/cpu/host_limits.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(HostLimits, CpuMax) {
  EXPECT_EQ(parse_cpu_max("200000 100000\n"), 2.0);
  EXPECT_EQ(parse_cpu_max("150000 100000"), 1.5);
  for (const char* none :
       {"max 100000\n", "", "0 100000", "100000 0", "-1 100000", "100000", "1 2 3", "a b"}) {
    EXPECT_FALSE(parse_cpu_max(none)) << none;
  }
}

TEST(HostLimits, MemoryLimit) {
  EXPECT_EQ(parse_memory_limit("8589934592\n"), 8589934592U);
  for (const char* none : {"max\n", "", "9223372036854771712\n", "99999999999999999999999", "-5", "12x"}) {
    EXPECT_FALSE(parse_memory_limit(none)) << none;
  }
}

TEST(HostLimits, CgroupPath) {
  constexpr std::string_view kMixed = "5:cpu,cpuacct:/a/b\n4:memory:/m\n0::/v2\nbroken\n1:broken\n";
  EXPECT_EQ(parse_cgroup_path(kMixed, "cpu"), "/a/b");
  EXPECT_EQ(parse_cgroup_path(kMixed, "cpuacct"), "/a/b");
  EXPECT_EQ(parse_cgroup_path(kMixed, "memory"), "/m");
  EXPECT_EQ(parse_cgroup_path(kMixed, ""), "/v2");
  EXPECT_FALSE(parse_cgroup_path(kMixed, "pids"));
  EXPECT_FALSE(parse_cgroup_path("", "cpu"));
}

TEST(HostLimits, Meminfo) {
  constexpr std::string_view kText = "MemTotal:       16 kB\nMemTotalX: 9 kB\nMemAvailable:    8 kB\n";
  EXPECT_EQ(parse_meminfo(kText, "MemTotal"), 16384U);
  EXPECT_EQ(parse_meminfo(kText, "MemAvailable"), 8192U);
  EXPECT_EQ(parse_meminfo(kText, "SwapTotal"), 0U);
  EXPECT_EQ(parse_meminfo("MemTotal: 99999999999999999999 kB", "MemTotal"), 0U);
}

TEST(HostLimits, OfThisMachineAreSane) {
  const HostLimits limits = read_host_limits();
  EXPECT_GE(limits.cpus_usable, 1);
  EXPECT_LE(limits.cpus_usable, limits.cpus_allowed);
  EXPECT_GT(limits.memory_total, 0U);
  EXPECT_LE(limits.memory_available, limits.memory_total);
}

}  // namespace
}  // namespace kiln
